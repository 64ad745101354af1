// SPDX-License-Identifier: Apache-2.0
// Keeps a page live: replaces the elements that the daemon has made anew. Without it, every page
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

function replace(id, html) {
  const old = document.getElementById(id);
  if (!old || isBusy(old)) return;
  const template = document.createElement("template");
  template.innerHTML = html;
  const made = template.content.firstElementChild;
  if (!made || made.isEqualNode(old)) return;
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
    const { time, elements, blocks } = JSON.parse(event.data);
    document.querySelector("header .time").textContent = `${time} UTC`;
    if (blocks) replaceAll(blocks);
    for (const [id, html] of Object.entries(elements)) replace(id, html);
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
