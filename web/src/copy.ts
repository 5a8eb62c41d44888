// Copies to the clipboard, or to a file where the browser has no clipboard.

/** copyText reports whether a text was copied; else it is in a file with the name. */
export async function copyText(text: string, name: string): Promise<boolean> {
  try {
    await navigator.clipboard.writeText(text)
    return true
  } catch {
    save(new Blob([text], { type: 'text/plain' }), name)
    return false
  }
}

/** copyPicture does the same for what a canvas shows, on a background and below a title. */
export async function copyPicture(canvas: HTMLCanvasElement, title: string, { paper, ink }: { paper: string; ink: string }, name: string): Promise<boolean> {
  const ratio = devicePixelRatio || 1
  const whole = document.createElement('canvas')
  const head = 28 * ratio
  ;[whole.width, whole.height] = [canvas.width, canvas.height + head]
  const context = whole.getContext('2d')
  if (!context) throw new Error('the browser draws no pictures')
  context.fillStyle = paper
  context.fillRect(0, 0, whole.width, whole.height)
  context.fillStyle = ink
  context.font = `600 ${13 * ratio}px system-ui, sans-serif`
  context.fillText(title, 8 * ratio, 19 * ratio, whole.width - 16 * ratio)
  context.drawImage(canvas, 0, head)
  const blob = await new Promise<Blob>((done, fail) => whole.toBlob((made) => (made ? done(made) : fail(new Error('the browser makes no PNG'))), 'image/png'))
  try {
    await navigator.clipboard.write([new ClipboardItem({ 'image/png': blob })])
    return true
  } catch {
    save(blob, name)
    return false
  }
}

/** save has the browser store a file. */
export function save(blob: Blob, name: string): void {
  const link = document.createElement('a')
  link.href = URL.createObjectURL(blob)
  link.download = name
  link.click()
  // The browser has read the link once the click is over.
  setTimeout(() => URL.revokeObjectURL(link.href), 1000)
}
