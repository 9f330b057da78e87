"use strict";
(() => {
  const every = Number(document.currentScript.dataset.every) * 1000;
  const note = document.getElementById("live");
  const calm = note.textContent;
  const clock = () => new Date().toLocaleTimeString();
  let last = clock();
  let timer = 0;

  const say = (words, alert) => {
    // Only what is new is said: it is read aloud.
    if (note.textContent !== words) note.textContent = words;
    note.className = alert ? "alert" : "note";
  };
  const places = () => Array.from(document.querySelectorAll("main .scroll, main summary"));
  const folds = () => Array.from(document.querySelectorAll("main details"));
  const swap = (page) => {
    const lefts = places().map((place) => place.scrollLeft);
    const focused = places().indexOf(document.activeElement);
    const open = folds().map((fold) => fold.open);
    for (const part of ["header", "main"]) {
      const old = document.querySelector(part), fresh = page.querySelector(part);
      if (!fresh) throw new Error("the answer is no report");
      if (old.innerHTML !== fresh.innerHTML) old.replaceWith(document.adoptNode(fresh));
    }
    document.title = page.title;
    folds().forEach((fold, index) => { fold.open = open[index] || false; });
    places().forEach((place, index) => { place.scrollLeft = lefts[index] || 0; });
    if (focused >= 0 && places()[focused]) places()[focused].focus({ preventScroll: true });
  };
  const look = async () => {
    clearTimeout(timer);
    try {
      const answer = await fetch(location.pathname, { cache: "no-store", signal: AbortSignal.timeout(120000) });
      const text = await answer.text();
      if (!answer.ok) throw new Error(text.trim().slice(0, 300) || `the server says ${answer.status}`);
      const selected = getSelection();
      // Nobody loses what he is about to copy.
      if (!selected || selected.isCollapsed) swap(new DOMParser().parseFromString(text, "text/html"));
      last = clock();
      say(calm, false);
    } catch (error) {
      say(`Not read anew since ${last}: ${error.message}`, true);
    }
    timer = setTimeout(look, every);
  };
  document.addEventListener("visibilitychange", () => { if (!document.hidden) look(); else clearTimeout(timer); });
  timer = setTimeout(look, every);
})();
