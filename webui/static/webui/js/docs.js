/** The pages of the REST description: a file of its own, because pages run no inline script. */

/* global SwaggerUIBundle */

const place = /** @type {HTMLElement} */ (document.querySelector("#doors"));
SwaggerUIBundle({ url: place.dataset.description, dom_id: "#doors", deepLinking: true });
