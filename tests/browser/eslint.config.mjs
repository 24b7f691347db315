// Checks the programs of the page, the film and the article; the tests run it.
import js from "@eslint/js";

const browser = Object.fromEntries(["addEventListener", "atob", "createImageBitmap", "document", "getComputedStyle", "history", "location",
  "matchMedia", "navigator", "performance", "requestAnimationFrame", "setInterval", "clearInterval", "setTimeout", "clearTimeout", "window",
  "IntersectionObserver", "MutationObserver", "OffscreenCanvas", "Option", "DOMException", "TextDecoder", "URLSearchParams"].map((name) => [name, "readonly"]));

export default [
  js.configs.recommended,
  {
    languageOptions: { ecmaVersion: 2024, sourceType: "module", globals: browser },
    linterOptions: { reportUnusedDisableDirectives: "error" },
    rules: {
      "no-var": "error", "prefer-const": "error", eqeqeq: "error", "no-shadow": "off", "no-implicit-globals": "error",
      "max-len": ["error", { code: 140 }], "no-use-before-define": ["error", { functions: false }], "no-unused-expressions": "error",
      "max-lines": ["error", 450], "max-lines-per-function": ["error", { max: 60 }], complexity: ["error", 18],
    },
  },
];
