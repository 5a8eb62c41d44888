// Translates what the server says: pure.

/** translator returns a function that translates texts made from formats such as "%d GPUs of %s". Other texts stay as they are. */
export function translator(formats: Record<string, string>, words: Record<string, string>): (text: string) => string {
  // Patterns are made when a text needs one: most pages have another language.
  let patterns: Pattern[] | undefined
  const known = new Map<string, string>()
  const find = (text: string): string => {
    const word = formats[text] ?? words[text]
    if (word !== undefined) return word
    patterns ??= patternsOf(formats)
    for (const { pattern, translation } of patterns) {
      const values = pattern.exec(text)
      if (values) return translation.replace(/\$(\d)/g, (_, place: string) => find(values[Number(place)] ?? ''))
    }
    return text
  }
  return (text) => {
    let translated = known.get(text)
    if (translated === undefined) {
      // Texts have numbers, so that there is no end of them.
      if (known.size > 2000) known.clear()
      known.set(text, (translated = find(text)))
    }
    return translated
  }
}

interface Pattern {
  pattern: RegExp
  translation: string
}

function patternsOf(formats: Record<string, string>): Pattern[] {
  return Object.entries(formats)
    .filter(([format]) => format.includes('%'))
    .map(([format, translation]) => ({ pattern: patternOf(format), translation }))
}

function patternOf(format: string): RegExp {
  const escaped = format.replace(/[.*+?^${}()|[\]\\]/g, '\\$&')
  return new RegExp(`^${escaped.replace(/%d/g, '(-?\\d+)').replace(/%[sv]/g, '([^]*?)')}$`)
}
