"use strict";
// Each write request needs a new Idempotency-Key, so the key of the example is replaced.
const EXAMPLE = "example-";
const dark = matchMedia("(prefers-color-scheme: dark)");
const follow = () => document.documentElement.classList.toggle("dark-mode", dark.matches);
dark.addEventListener("change", follow);
follow();
const place = document.getElementById("reference");
SwaggerUIBundle({
  url: place.dataset.url,
  domNode: place,
  deepLinking: true,
  displayRequestDuration: true,
  docExpansion: "none",
  filter: true,
  tryItOutEnabled: true,
  defaultModelsExpandDepth: 0,
  defaultModelExpandDepth: 2,
  presets: [SwaggerUIBundle.presets.apis],
  layout: "BaseLayout",
  requestInterceptor: (request) => {
    // The document has the public URL. The page may be open at another one, to which its policy limits requests.
    const target = new URL(request.url, location.href);
    request.url = location.origin + target.pathname + target.search;
    const name = Object.keys(request.headers || {}).find((header) => header.toLowerCase() === "idempotency-key");
    if (name && request.headers[name].startsWith(EXAMPLE)) {
      const words = crypto.getRandomValues(new Uint32Array(4));
      request.headers[name] = EXAMPLE + Array.from(words, (word) => word.toString(16).padStart(8, "0")).join("");
    }
    return request;
  },
});
