/**
 * Brings what is shown up to date and leaves in place what stays: what is pressed, focused, scrolled, hovered or
 * selected meanwhile stays so, which no element survives that is taken out and put back. Where what had the focus
 * goes for good, its region has it.
 */

const HANDLERS = ["onclick", "onchange"];
const keyOf = (node) => node.dataset?.key;

/** Make these the children of `place`; those with a `data-key` are known by it, others by where they stand. @param {Element} place @param {Node[]} wanted */
export function renew(place, wanted) {
  const focused = document.activeElement;
  const handBack = place.contains(focused) ? comeBack(focused) : () => {};
  const keys = new Set(wanted.map(keyOf));
  const kept = new Map();
  for (const node of [...place.childNodes]) {
    const key = keyOf(node);
    if (key !== undefined && (!keys.has(key) || kept.has(key))) node.remove();
    else if (key !== undefined) kept.set(key, node);
  }
  let next = place.firstChild;
  for (const fresh of wanted) {
    const key = keyOf(fresh);
    while (key !== undefined && next && keyOf(next) === undefined) next = dropped(next);
    const old = key === undefined ? (next && keyOf(next) === undefined ? next : null) : kept.get(key);
    const shown = old && old.nodeName === fresh.nodeName ? settle(old, fresh) : fresh;
    if (old && old === next) next = next.nextSibling;
    if (shown !== old) old?.remove();
    if (shown.parentNode !== place || shown.nextSibling !== next) place.insertBefore(shown, next);
  }
  while (next) next = dropped(next);
  handBack();
}

/** Give what focuses the region that an element stands in now, when it is no longer there: else the keyboard would begin at the top. @param {Element | null} element */
export function comeBack(element) {
  const region = /** @type {HTMLElement | null} */ (element?.closest("[role=region], section"));
  return () => {
    if (!region || element?.isConnected) return;
    if (!region.hasAttribute("tabindex")) region.tabIndex = -1;
    region.focus({ preventScroll: true });
  };
}

/** Take a node out; give the one after it. */
function dropped(node) {
  const after = node.nextSibling;
  node.remove();
  return after;
}

/** Give a node the looks and the handlers of a fresh one of its kind. */
function settle(old, fresh) {
  if (old.nodeType !== Node.ELEMENT_NODE) {
    if (old.data !== fresh.data) old.data = fresh.data;
    return old;
  }
  for (const { name } of [...old.attributes]) if (!fresh.hasAttribute(name)) old.removeAttribute(name);
  for (const { name, value } of fresh.attributes) if (old.getAttribute(name) !== value) old.setAttribute(name, value);
  for (const name of HANDLERS) old[name] = fresh[name];
  renew(old, [...fresh.childNodes]);
  return old;
}
