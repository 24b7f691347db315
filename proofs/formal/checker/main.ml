(* Reads certificates and layers from standard input, gives them to the checker that Checker.v proves right, and prints
   its verdicts, a line for each layer.

   Nothing is decided here. A layer is a line of words, then the bits of its numbers, in little-endian order:

     claimed shape (7 words), dtype, alpha, low, high, bound, an exponent that none of the numbers lies below
     stored shape (7 words), dtype, dtype of positions, number of axes, heads, channels, weights of a channel

     alphas [heads], centers [heads, axes], weights [channels, weights of a channel], biases [channels]

   A list in a shape is a word with commas, or "-" if it is empty. Alpha, low, high and bound are the bits of float64. *)

module Integer = Z (* Zarith's; Checker has a Z of its own *)
open Checker

exception Not_finite

let number dtype bits =
  match number_of_bits dtype bits with Some x -> x | None -> raise Not_finite

let bytes_of dtype = match Integer.to_int dtype with 0 | 1 -> 2 | 2 -> 4 | _ -> 8

(* The bits of the numbers that come next, as they are, so that a layer is read to its end whatever is in it. *)
let read_bits dtype count =
  let width = bytes_of dtype in
  let block = Bytes.create (width * count) in
  really_input stdin block 0 (width * count);
  List.init count (fun i ->
      let low at = Int32.to_int (Bytes.get_int32_le block at) land 0xFFFFFFFF in
      match width with
      | 2 -> Integer.of_int (Bytes.get_uint16_le block (2 * i))
      | 4 -> Integer.of_int (low (4 * i))
      | _ -> Integer.add (Integer.of_int (low (8 * i))) (Integer.shift_left (Integer.of_int (low (8 * i + 4))) 32))

let rec rows width = function
  | [] -> []
  | numbers ->
      let rec split n row rest =
        match rest with x :: rest when n > 0 -> split (n - 1) (x :: row) rest | _ -> (List.rev row, rest)
      in
      let row, rest = split width [] numbers in
      row :: (if rest = [] || width = 0 then [] else rows width rest)

let list word = if word = "-" then [] else List.map Integer.of_string (String.split_on_char ',' word)

let shape = function
  | [ k; s; d; p; groups; inputs; outputs ] ->
      { kernel_size = list k; strides = list s; dilations = list d; padding = list p;
        group_count = Integer.of_string groups; inputs_of_group = Integer.of_string inputs; outputs_of_group = Integer.of_string outputs }
  | _ -> failwith "a shape is seven words"

let rec take n l = match l with x :: l when n > 0 -> let a, b = take (n - 1) l in (x :: a, b) | _ -> ([], l)

let judged line =
  let claimed, rest = take 7 (String.split_on_char ' ' line) in
  match take 6 rest with
  | dtype :: alpha :: low :: high :: bound :: [ exponent ], rest -> (
      let kept, rest = take 7 rest in
      match rest with
      | [ stored_dtype; position_dtype; axes; heads; channels; width ] ->
          let double word = number (Integer.of_int 3) (Integer.of_string word) in
          let stored_dtype = Integer.of_string stored_dtype and position_dtype = Integer.of_string position_dtype in
          let axes = int_of_string axes and heads = int_of_string heads and width = int_of_string width in
          let alphas = read_bits position_dtype heads in
          let centers = read_bits position_dtype (heads * axes) in
          let weights = List.init (int_of_string channels) (fun _ -> read_bits stored_dtype width) in
          let biases = read_bits stored_dtype (int_of_string channels) in
          let numbers dtype = List.map (number dtype) in
          let exponent = Integer.of_string exponent in
          check
            { claimed_shape = shape claimed; claimed_dtype = Integer.of_string dtype; claimed_alpha = double alpha;
              low = double low; high = double high; claimed_bound = double bound }
            { stored_shape = shape kept; stored_dtype; exponent; alphas = numbers position_dtype alphas;
              centers = rows axes (numbers position_dtype centers);
              channels =
                List.map2
                  (fun row bias -> { weights = numbers stored_dtype row; bias = number stored_dtype bias })
                  weights biases }
      | _ -> failwith "a layer ends with six words")
  | _ -> failwith "a certificate is thirteen words"

let word = function
  | Accepted -> "Accepted"
  | Other_shape -> "Other_shape"
  | Other_dtype -> "Other_dtype"
  | Other_alpha -> "Other_alpha"
  | Not_one_hot -> "Not_one_hot"
  | Other_centers -> "Other_centers"
  | Malformed -> "Malformed"
  | May_overflow -> "May_overflow"
  | Too_small -> "Too_small"
  | Too_large -> "Too_large"

let () =
  set_binary_mode_in stdin true;
  try
    while true do
      let line = input_line stdin in
      print_endline (try word (judged line) with Not_finite -> "Not_finite")
    done
  with End_of_file -> ()
