/* What a reader brings: safetensors files, folders that conv2attn wrote, pictures. They are read here and go nowhere.
   What does not fit its own description is refused in one sentence. */

import { decodedBytes } from "./attention.js";
import { PADDING_MODES, Refusal } from "./layer.js";

const LARGEST_HEADER = 100_000_000; // bytes, as the format's own library reads
const LARGEST_KERNEL = 11; // taps along an axis; more panels than that nobody tells apart
const LONGEST = 64; // pixels of a picture's longer side, here
const BYTES = { F64: 8, F32: 4, F16: 2, BF16: 2, I64: 8, U64: 8, I32: 4, U32: 4, I16: 2, U16: 2, I8: 1, U8: 1, BOOL: 1,
  F8_E4M3: 1, F8_E5M2: 1, F8_E8M0: 1, C64: 8 };
const READ = { F64: (view, at) => view.getFloat64(at, true), F32: (view, at) => view.getFloat32(at, true),
  F16: (view, at) => fromHalf(view.getUint16(at, true)), BF16: (view, at) => fromBrain(view.getUint16(at, true)),
  U8: (view, at) => view.getUint8(at) };

function fromHalf(bits) {
  const sign = bits >> 15 ? -1 : 1, power = bits >> 10 & 31, rest = bits & 1023;
  if (power === 31) return rest ? NaN : sign * Infinity;
  return sign * (power ? (1 + rest / 1024) * 2 ** (power - 15) : rest * 2 ** -24);
}

function fromBrain(bits) { return new Float32Array(new Uint32Array([bits << 16]).buffer)[0]; }

/** The tensors of a safetensors file, {dtype, shape, start, end} by name, after its header is held against its size. */
export async function readHeader(blob, name) {
  const bad = (why) => new Refusal(`${name} is not a safetensors file that can be read: ${why}.`);
  if (blob.size < 8) throw bad(`it has ${blob.size} bytes`);
  const length = Number(new DataView(await blob.slice(0, 8).arrayBuffer()).getBigUint64(0, true));
  if (length > LARGEST_HEADER) throw bad(`its header would have ${length.toLocaleString("en")} bytes`);
  if (length + 8 > blob.size) throw bad("it ends within its header");
  let header;
  try {
    header = JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(await blob.slice(8, 8 + length).arrayBuffer()));
  } catch { throw bad("its header is not JSON"); }
  if (header === null || typeof header !== "object" || Array.isArray(header)) throw bad("its header names no tensors");
  const tensors = new Map(), room = blob.size - 8 - length;
  for (const [key, entry] of Object.entries(header)) {
    if (key !== "__metadata__") tensors.set(key, checkedTensor(entry, key, room, 8 + length, bad));
  }
  const places = [...tensors.values()].map(({ start, end }) => [start, end]).sort((a, b) => a[0] - b[0] || a[1] - b[1]);
  const end = places.reduce((at, [first, last]) => first === at ? last : NaN, 8 + length);
  if (end !== blob.size) throw bad("its tensors overlap, or leave bytes out");
  return tensors;
}

function checkedTensor(entry, key, room, first, bad) {
  const { dtype, shape, data_offsets: offsets } = entry ?? {}, what = `the tensor ${JSON.stringify(key).slice(0, 80)}`;
  const natural = (list) => Array.isArray(list) && list.every((number) => Number.isSafeInteger(number) && number >= 0);
  if (!natural(shape) || !natural(offsets) || offsets.length !== 2) throw bad(`${what} has no shape or place`);
  if (!Object.hasOwn(BYTES, dtype)) throw bad(`${what} has numbers of a kind that is not known`);
  const [start, end] = offsets, size = shape.reduce((product, side) => product * side, BYTES[dtype]);
  if (end > room || end - start !== size) throw bad(`${what} does not fit its place`);
  return { dtype, shape, start: first + start, end: first + end };
}

/** Numbers of a kind, row by row. */
function numbersOf(dtype, buffer) {
  const view = new DataView(buffer), width = BYTES[dtype];
  return Float64Array.from({ length: view.byteLength / width }, (_, at) => READ[dtype](view, at * width));
}

/** The numbers of a tensor that the page holds itself, {dtype, data}. */
export function decodedTensor({ dtype, data }) { return numbersOf(dtype, decodedBytes(data).buffer); }

async function readTensor(blob, { dtype, start, end }) { return numbersOf(dtype, await blob.slice(start, end).arrayBuffer()); }

/** The convolutions of some files that were dropped together: {name, geometry or null, load()} each. */
export async function readNetwork(files) {
  const weights = files.find(({ name }) => name.endsWith(".safetensors"));
  if (!weights) throw new Refusal("A network is read from a .safetensors file, or from a folder that conv2attn wrote.");
  const tensors = await readHeader(weights, weights.name);
  const config = files.find(({ name }) => name === "config.json"), described = config ? await readConfig(config) : null;
  const found = [...tensors].filter(([key, tensor]) => isKernel(key, tensor)).flatMap(([key, tensor]) => {
    const name = key.slice(0, -"weight".length).replace(/\.$/, ""), spec = described?.get(name) ?? null;
    if (described && !spec) return [];
    return [{ name: name || "the layer", spec, shape: tensor.shape, load: () => load(weights, tensors, key) }];
  });
  if (!found.length) {
    const largest = `${LARGEST_KERNEL} × ${LARGEST_KERNEL}`;
    throw new Refusal(`${weights.name} holds no convolution over two axes with a kernel of at most ${largest}.`);
  }
  return found;
}

function isKernel(key, { dtype, shape }) {
  return /(^|\.)weight$/.test(key) && Object.hasOwn(READ, dtype) && dtype !== "U8" && shape.length === 4
    && shape.every((side) => side > 0) && Math.max(shape[2], shape[3]) <= LARGEST_KERNEL;
}

async function load(blob, tensors, key) {
  const entry = tensors.get(key), bias = tensors.get(key.replace(/weight$/, "bias"));
  const weight = await readTensor(blob, entry);
  if (!weight.every(Number.isFinite)) throw new Refusal(`The weights of ${key} are not all finite.`);
  const fits = bias && Object.hasOwn(READ, bias.dtype) && bias.shape.length === 1 && bias.shape[0] === entry.shape[0];
  return { weight, shape: entry.shape, bias: fits ? await readTensor(blob, bias) : null };
}

/** The geometry of each layer that a folder's config.json describes, by name; transposed convolutions are left out. */
async function readConfig(file) {
  let layers;
  try { ({ layers } = JSON.parse(await file.text())); } catch { throw new Refusal("config.json is not JSON."); }
  const pair = (value, least) => Array.isArray(value) && value.length === 2 && value.every((n) => Number.isSafeInteger(n) && n >= least);
  const found = new Map();
  for (const { names = [], spec = {} } of Array.isArray(layers) ? layers : []) {
    const { kernel_size, stride, dilation, padding, padding_mode } = spec;
    const pads = padding === "same" || padding === "valid" || (Array.isArray(padding) && padding.length === 2
      && padding.every((each) => pair([each, each].flat().slice(0, 2), 0)));
    if (spec.transposed || !pads || !PADDING_MODES.includes(padding_mode)) continue;
    if (pair(kernel_size, 1) && pair(stride, 1) && pair(dilation, 1)) {
      for (const name of names) found.set(name, { kernel_size, stride, dilation, padding, padding_mode });
    }
  }
  return found;
}

/** A picture as {size, rgb}, on white, with its longer side scaled to at most so many pixels. */
export async function readPicture(file, longest = LONGEST) {
  let bitmap;
  try { bitmap = await createImageBitmap(file); } catch {
    throw new Refusal(`${file.name || "What was dropped"} is not a picture that this browser can read.`);
  }
  const scale = Math.min(1, longest / Math.max(bitmap.width, bitmap.height));
  const [rows, columns] = [bitmap.height, bitmap.width].map((side) => Math.max(1, Math.round(side * scale)));
  const context = new OffscreenCanvas(columns, rows).getContext("2d");
  Object.assign(context, { fillStyle: "white", imageSmoothingQuality: "high" });
  context.fillRect(0, 0, columns, rows);
  context.drawImage(bitmap, 0, 0, columns, rows);
  bitmap.close();
  return { size: [rows, columns], rgb: context.getImageData(0, 0, columns, rows).data.filter((_, at) => at % 4 < 3) };
}

/** The files below what was dropped, whole folders too. */
export async function droppedFiles(transfer) {
  const entries = [...transfer.items].map((item) => item.webkitGetAsEntry?.()).filter(Boolean);
  if (!entries.some((entry) => entry.isDirectory)) return [...transfer.files];
  const inside = await Promise.all(entries.filter((entry) => entry.isDirectory).map((entry) =>
    new Promise((done, fail) => { entry.createReader().readEntries(done, fail); })));
  const files = inside.flat().filter((entry) => entry.isFile);
  return Promise.all(files.map((entry) => new Promise((done, fail) => { entry.file(done, fail); })));
}
