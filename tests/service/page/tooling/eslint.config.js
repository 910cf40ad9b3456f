import js from "@eslint/js";
import imports from "eslint-plugin-import-x";
import globals from "globals";

export default [
  js.configs.recommended,
  {
    plugins: { "import-x": imports },
    languageOptions: { globals: { ...globals.browser, ...globals.audioWorklet } },
    rules: {
      "import-x/order": ["error", { alphabetize: { order: "asc", caseInsensitive: true } }],
      "max-lines": ["error", 300],
    },
  },
];
