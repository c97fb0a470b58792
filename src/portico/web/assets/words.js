// What the pages say. English is here; each other language is a module of its own, which comes if it is needed.
// {name} stands for a value.

const ENGLISH = {
  ask: "Ask", askAnything: "Ask anything…", question: "Your question", send: "Ask", stop: "Stop", stopped: "Stopped.",
  conversation: "Conversation", you: "You asked", looking: "Looking…", results: "{count} results",
  oneResult: "1 result", understood: "Understood", without: "Ask again without “{what}”",
  sources: "Source {number}: {name}", followups: "Go on with", starters: "Try", retry: "Try again",
  retryIn: "Try again in {seconds} s", editAsk: "Edit the question", copy: "Copy", copied: "Copied",
  helpful: "This helped", unhelpful: "This did not help", thanks: "Thank you. It was passed on.",
  whatMissing: "What was missing?", sendIt: "Send", failed: "That did not work",
  offline: "The site could not be reached.",
  blocked: "This page may not ask the site. Whoever runs it can allow this page's address.", history: "Earlier",
  newChat: "New", close: "Close", noHistory: "Nothing yet. What you ask stays in this browser.", remove: "Delete",
  removeAll: "Delete all", export: "Export", system: "System", language: "Language", where: "Where to look",
  everywhere: "Everything", how: "How to answer", list: "List", summarize: "List and summary", generate: "Answer",
  reply: "Go on", working: "Working on it", cancel: "Cancel", cancelled: "Cancelled.", done: "Done",
  confirm: "Are you sure?", cannotUndo: "You may not be able to undo this.", doIt: "Do it", back: "Back",
  approval: "Somebody has to approve this",
  approvalHow: "Whoever runs the site can approve it at the desk, with this token. Then try again.", token: "Token",
  needsKey: "This needs a key", keyHow: "Your key stays in this tab.", key: "API key", use: "Use it", more: "More",
  yes: "Yes", no: "No", free: "Free",
  longText: "Show all", inStock: "In stock", soldOut: "Sold out",
  enterHint: "Enter asks, Shift and Enter makes a new line, Escape stops.",
  greeting: "Hello! What would you like to know?", welcome: "You are welcome.",
  goodbye: "Goodbye!",
  notKept: "There is no room left in this browser to keep this conversation.", price: "Price",
};

export const LANGUAGES = { en: "English", de: "Deutsch", es: "Español", fr: "Français", ar: "العربية" };
const RIGHT_TO_LEFT = new Set(["ar", "arc", "ckb", "dv", "fa", "he", "ku", "ps", "sd", "ug", "ur", "yi"]);

/** The direction of a language's script. */
export function direction(language) {
  return RIGHT_TO_LEFT.has(String(language).split("-")[0].toLowerCase()) ? "rtl" : "ltr";
}

/** The first of some languages that there are words for; English if there is none. */
export function spoken(...wanted) {
  const known = wanted.flat().map((each) => String(each ?? "").split("-")[0].toLowerCase());
  return known.find((each) => each in LANGUAGES) ?? "en";
}

// As a site greets back, and tells who looks around what there is, and is thanked.
const GREETINGS =
  "good morning|good afternoon|good evening|hello there|hi there|hey there|hello|hi|hey|greetings|" +
  "what can you do|what can you help me with|what can i ask you|what can i ask here|what can i ask|" +
  "what do you have|what do you sell|what is there|how does this work|who are you|help|guten morgen|guten tag|" +
  "guten abend|hallo zusammen|hallo|servus|moin|grüß gott|grüezi|was kannst du|was können sie|" +
  "was kann ich fragen|was gibt es hier|was gibt es|was verkauft ihr|was verkaufen sie|wer bist du|hilfe|" +
  "buenos días|buenas tardes|buenas noches|buenas|hola a todos|hola|qué puedes hacer|qué puedo preguntar|" +
  "qué hay aquí|qué hay|qué venden|qué vendéis|quién eres|ayuda|bonjour à tous|bonjour|bonsoir|salut|coucou|" +
  "que peux tu faire|que pouvez vous faire|que puis je demander|que vendez vous|qui es tu|aide|السلام عليكم|" +
  "صباح الخير|مساء الخير|مرحبا|مرحبًا|أهلا|أهلًا|ماذا يمكنك أن تفعل|ماذا تبيعون|ماذا لديكم|مساعدة|こんにちは|こんばんは|" +
  "おはようございます|おはよう|はじめまして|何ができますか|何がありますか|何を売っていますか|ヘルプ|早上好|下午好|晚上好|你好|您好|大家好|你能做什么|我可以问什么|你们卖什么|这里有什么|帮助";

const THANKS =
  "thank you very much|thank you|thanks a lot|many thanks|thanks|cheers|vielen dank|danke schön|dankeschön|danke|" +
  "muchas gracias|gracias|merci beaucoup|merci bien|merci|شكرًا جزيلًا|شكرا جزيلا|شكرًا|شكرا|" +
  "ありがとうございます|ありがとう|非常感谢|谢谢你|谢谢";

const FAREWELLS =
  "goodbye|good bye|bye bye|bye|see you later|see you|good night|auf wiedersehen|tschüss|tschüß|tschau|bis bald|gute nacht|" +
  "adiós|adios|hasta luego|hasta pronto|chao|au revoir|à bientôt|bonne nuit|bonne journée|مع السلامة|إلى اللقاء|وداعا|さようなら|またね|再见|拜拜";

/** The word to say back to somebody who says hello, thanks or goodbye, in any language, and nothing else. */
export function courtesy(text) {
  const said = text.toLowerCase().replace(/[^\p{L}\p{M}]+/gu, " ").trim();
  if (GREETINGS.split("|").includes(said)) return "greeting";
  if (THANKS.split("|").includes(said)) return "welcome";
  return FAREWELLS.split("|").includes(said) ? "goodbye" : "";
}

/** What to say in a language: `say("results", {count: 3})`. In English if its words do not come. */
export async function words(language) {
  const tag = spoken(language);
  const table = tag === "en" ? {} : await import(`./words-${tag}.js`).then((each) => each.default, () => null);
  return saying(table ? tag : "en", table ?? {});
}

function saying(language, table) {
  const number = new Intl.NumberFormat(language);
  const written = (value) => (typeof value === "number" ? number.format(value) : String(value ?? ""));
  const say = (name, values = {}) =>
    (table[name] ?? ENGLISH[name] ?? name).replace(/\{(\w+)\}/g, (_, key) => written(values[key]));
  say.language = language;
  say.own = table; // of this language alone: forms and the theme bring their own English
  return say;
}
