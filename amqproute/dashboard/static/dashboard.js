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

/** Since when is a time on the page counted? By the element. */
const counted = new WeakMap();
let isCounting = false;

/** A span of time as the daemon writes it: its two largest units. */
function span(seconds) {
  const two = number => String(number).padStart(2, "0");
  if (seconds < 60) return `${seconds} s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return `${minutes} min ${two(seconds % 60)} s`;
  const hours = Math.floor(minutes / 60);
  if (hours < 48) return `${hours} h ${two(minutes % 60)} min`;
  return `${Math.floor(hours / 24)} d ${hours % 24} h`;
}

/** Counts the times that go on: the daemon sends them only if they are not what is counted. */
function count() {
  const now = performance.now();
  const selection = getSelection();
  for (const each of document.querySelectorAll("time.counted")) {
    if (!counted.has(each)) counted.set(each, now);
    if (!isCounting || (!selection.isCollapsed && selection.containsNode(each, true))) continue;
    const passed = Math.floor((now - counted.get(each)) / 1000);
    const began = parseInt(each.getAttribute("datetime").slice(2), 10);
    const left = began - passed;
    const words = each.classList.contains("up") ? span(began + passed)
      : left > 0 ? `in ${span(left)}` : "now";
    if (each.textContent !== words) each.textContent = words;
  }
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
    isCounting = true;
    const { time, elements, orders, blocks } = JSON.parse(event.data);
    document.querySelector("header .time").textContent = `${time} UTC`;
    if (blocks) {
      late = { elements: {}, orders: {} };
      replaceAll(blocks);
    }
    take(elements, orders);
    count();
  });
  stream.addEventListener("gone", () => {
    end();
    say("logged out", true);
  });
  stream.addEventListener("error", () => {
    isCounting = false;
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
  isCounting = false;
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
  count();
  setInterval(count, 1000);
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
