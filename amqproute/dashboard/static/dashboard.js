// SPDX-License-Identifier: Apache-2.0
// Keeps a page live: takes the elements that the daemon has made anew. Without it, every page
// still works; it is then as old as its request.

const source = document.body.dataset.live;
const stateOf = document.getElementById("live-state");
const toggle = document.getElementById("live-toggle");
let stream = null;
let isPaused = false;

function say(words, isStale) {
  if (stateOf.textContent !== words) stateOf.textContent = words;
  stateOf.parentElement.classList.toggle("stale", isStale);
}

/** Is the operator in the middle of something there? Then it is left alone until he is done. */
function isBusy(element) {
  const active = document.activeElement;
  if (active && element.contains(active) && active.matches("input, select, textarea")) return true;
  const selection = getSelection();
  return !selection.isCollapsed && selection.containsNode(element, true);
}

/** Where is the focus among the things in an element that can have it? */
function focusWithin(element) {
  const active = document.activeElement;
  if (!active || active === document.body || !element.contains(active)) return -1;
  return [...element.querySelectorAll("a, button, [tabindex]")].indexOf(active);
}

function make(html) {
  const template = document.createElement("template");
  template.innerHTML = html;
  return template.content.firstElementChild;
}

/** Replaces an element; false if the operator is busy there, and it has to wait. */
function replace(id, html) {
  const old = document.getElementById(id);
  if (!old) return true;
  if (isBusy(old)) return false;
  const made = make(html);
  if (!made || made.isEqualNode(old)) return true;
  const focused = focusWithin(old);
  const scroll = old.querySelector(".scroll")?.scrollLeft ?? 0;
  old.replaceWith(made);
  if (made.matches("tr")) made.classList.add("changed");
  const region = made.querySelector(".scroll");
  if (region) region.scrollLeft = scroll;
  if (focused >= 0) {
    const places = made.querySelectorAll("a, button, [tabindex]");
    places[Math.min(focused, places.length - 1)]?.focus({ preventScroll: true });
  }
  addCopyButtons(made);
  return true;
}

/** Has the rows of a block come, go and move; false if that has to wait. */
function arrange(id, ids, elements) {
  const block = document.getElementById(id);
  const rows = block?.querySelector("tbody, .log");
  if (!rows) return true;
  if (isBusy(rows)) return false;
  const wanted = new Set(ids);
  for (const row of [...rows.children]) {
    if (!wanted.has(row.id)) row.remove();
  }
  let next = null;
  for (const each of [...ids].reverse()) {
    const known = document.getElementById(each);
    const row = known ?? (elements[each] && make(elements[each]));
    if (!row) continue;
    if (!known && row.matches("tr")) row.classList.add("changed");
    if (row.parentElement !== rows || row.nextElementSibling !== next) rows.insertBefore(row, next);
    next = row;
  }
  return true;
}

/** What came while the operator was busy with what it would replace. */
let late = { elements: {}, orders: {} };

function take(elements, orders) {
  const all = { ...late.elements, ...elements };
  const ordered = { ...late.orders, ...orders };
  late = { elements: {}, orders: {} };
  for (const [id, html] of Object.entries(all)) {
    if (!replace(id, html)) late.elements[id] = html;
  }
  for (const [id, ids] of Object.entries(ordered)) {
    if (arrange(id, ids, all)) continue;
    late.orders[id] = ids;
    for (const each of ids) if (all[each]) late.elements[each] = all[each];
  }
}

/** Takes all blocks anew: one by one if they are the same ones as before. */
function replaceAll(html) {
  const place = document.getElementById("blocks");
  const template = document.createElement("template");
  template.innerHTML = html;
  const ids = parent => [...parent.children].map(each => each.id).join(" ");
  if (ids(template.content) === ids(place)) {
    for (const each of template.content.children) {
      if (!each.matches(".block-form, .block-toolbar")) replace(each.id, each.outerHTML);
    }
  } else if (!isBusy(place)) {
    place.replaceChildren(template.content);
    addCopyButtons(place);
  }
}

function begin() {
  stream = new EventSource(source);
  stream.addEventListener("open", () => say("live", false));
  stream.addEventListener("change", event => {
    say("live", false);
    const { time, elements, orders, blocks } = JSON.parse(event.data);
    document.querySelector("header .time").textContent = `${time} UTC`;
    if (blocks) {
      late = { elements: {}, orders: {} };
      replaceAll(blocks);
    }
    take(elements, orders);
  });
  stream.addEventListener("gone", () => {
    end();
    say("logged out", true);
  });
  stream.addEventListener("error", () => {
    const since = new Date().toISOString().slice(11, 19);
    if (stateOf.dataset.lost !== "yes") say(`not live since ${since}`, true);
    stateOf.dataset.lost = "yes";
    if (stream && stream.readyState === EventSource.CLOSED) {
      stream = null;
      setTimeout(() => { if (!isPaused && !stream) begin(); }, 5000);
    }
  });
  stream.addEventListener("open", () => delete stateOf.dataset.lost);
}

function end() {
  if (stream) stream.close();
  stream = null;
}

function addCopyButtons(within) {
  if (!navigator.clipboard) return;
  for (const line of within.querySelectorAll(".command")) {
    if (line.querySelector("button")) continue;
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = "Copy";
    button.setAttribute("aria-label", `Copy: ${line.textContent.trim()}`);
    button.addEventListener("click", async () => {
      await navigator.clipboard.writeText(line.querySelector("code").textContent);
      button.textContent = "Copied";
    });
    line.append(button);
  }
}

addCopyButtons(document);
if (source) {
  stateOf.parentElement.hidden = false;
  toggle.addEventListener("click", () => {
    isPaused = !isPaused;
    toggle.textContent = isPaused ? "Go on" : "Pause";
    if (isPaused) {
      end();
      say("paused", false);
    } else begin();
  });
  addEventListener("pagehide", end);
  addEventListener("pageshow", event => { if (event.persisted && !isPaused) begin(); });
  begin();
}
