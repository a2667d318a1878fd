// Where the parts of a JSON text stand: by paths as the gateway names them (`steps[2].branches.eu[0].ms`). Pure.
//
//     placesIn('{"steps": [{"ms": 0}]}')  ->  { places: Map { "steps[0].ms" -> 12, … }, error: null }
//
// A text that is no JSON has an error: { at, message }; the places up to there are known all the same.

const SPACE = /\s*/y;
const STRING = /"(?:[^"\\\u0000-\u001f]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*"/y;
const PLAIN = /-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?|true|false|null/y;

class Wrong extends Error {
  constructor(at, message) {
    super(message);
    this.at = at;
  }
}

export function placesIn(text) {
  const reader = new Reader(text);
  try {
    reader.value("");
    reader.space();
    if (reader.at < text.length) throw new Wrong(reader.at, "there is more behind the end");
    return { places: reader.places, error: null };
  } catch (error) {
    if (!(error instanceof Wrong)) throw error;
    return { places: reader.places, error: { at: error.at, message: error.message } };
  }
}

/** The place of a path, or of what is around it; 0 if nothing is known. */
export function placeOf(places, path) {
  for (let each = path; each; each = each.replace(/(\.[^.[\]]+|\[\d+\]|^[^.[\]]+)$/, "")) {
    if (places.has(each)) return places.get(each);
    if (!/[.[]/.test(each)) break;
  }
  return 0;
}

export const lineOf = (text, at) => text.slice(0, at).split("\n").length;

class Reader {
  constructor(text) {
    this.text = text;
    this.at = 0;
    this.places = new Map();
  }

  space() {
    this.take(SPACE);
  }

  take(pattern) {
    pattern.lastIndex = this.at;
    const found = pattern.exec(this.text);
    if (found) this.at = pattern.lastIndex;
    return found?.[0];
  }

  value(path) {
    this.space();
    if (path) this.places.set(path, this.places.get(path) ?? this.at);
    const next = this.text[this.at];
    if (next === "{") this.object(path);
    else if (next === "[") this.array(path);
    else if (!this.take(next === '"' ? STRING : PLAIN)) {
      throw new Wrong(this.at, next ? `${next} does not begin a value` : "it ends too early");
    }
  }

  object(path) {
    this.items("}", () => {
      this.space();
      const at = this.at;
      const name = this.take(STRING);
      if (!name) throw new Wrong(this.at, 'a name in "quotes" is missing');
      const inner = path ? `${path}.${JSON.parse(name)}` : JSON.parse(name);
      this.places.set(inner, at);
      this.space();
      if (this.text[this.at++] !== ":") throw new Wrong(this.at - 1, "a colon is missing");
      this.value(inner);
    });
  }

  array(path) {
    this.items("]", (index) => this.value(`${path}[${index}]`));
  }

  items(end, read) {
    this.at++;
    this.space();
    if (this.text[this.at] === end) return void this.at++;
    for (let index = 0; ; index++) {
      read(index);
      this.space();
      const next = this.text[this.at++];
      if (next === end) return undefined;
      if (next !== ",") throw new Wrong(this.at - 1, `a comma or ${end} is missing`);
    }
  }
}
