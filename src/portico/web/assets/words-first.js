// Before anything is seen: the language of the page and its direction. Its words are asked for at once.
// Not a module, so that nothing is shown in another language first.
(() => {
  const root = document.documentElement;
  let chosen = null;
  try {
    chosen = localStorage.getItem("portico.language");
  } catch {
    // A browser that keeps nothing speaks its own language.
  }
  const wanted = [chosen, ...(navigator.languages ?? []), document.currentScript.dataset.language];
  const tags = wanted.map((each) => String(each ?? "").split("-")[0].toLowerCase());
  const language = tags.find((each) => ["en", "de", "es", "fr", "ar"].includes(each)) ?? "en";
  Object.assign(root, { lang: language, dir: language === "ar" ? "rtl" : "ltr" });
  if (language === "en") return;
  root.dataset.unsaid = "";
  const ahead = { rel: "modulepreload", href: `/assets/words-${language}.js` };
  document.head.append(Object.assign(document.createElement("link"), ahead));
})();
