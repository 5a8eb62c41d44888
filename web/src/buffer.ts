// The last lines of a log: pure.

export interface Line {
  replica: string
  text: string
  time?: string
  /** Whether the server says it, and no replica. */
  notice?: boolean
}

/** Buffer keeps a bounded number of lines, and counts what it dropped. */
export class Buffer {
  lines: Line[] = []
  dropped = 0

  constructor(private readonly most = 20_000) {}

  add(lines: Line[]): void {
    for (const line of lines) this.lines.push(line)
    // A tenth at once, because each removal moves all others.
    if (this.lines.length > this.most * 1.1) {
      const excess = this.lines.length - this.most
      this.lines.splice(0, excess)
      this.dropped += excess
    }
  }
}
