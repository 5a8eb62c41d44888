// Chromium for the scripts beside this one: steps that are counted, pictures, and axe.
import assert from 'node:assert/strict'
import { mkdirSync, readFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { chromium } from 'playwright-core'

const pictures = process.env.PICTURES
const axe = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8')
const args = ['--no-sandbox', '--disable-gpu', '--disable-background-networking', '--disable-component-update', '--disable-sync', '--enable-precise-memory-info']
export const browser = await chromium.launch({ executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium', args })
const failures = []

/** step does a part of a script, and continues after a failure. */
export async function step(name, run) {
  const began = Date.now()
  try {
    const note = await run()
    console.log(`ok: ${name} (${note ? `${note}, ` : ''}${Date.now() - began} ms)`)
  } catch (error) {
    failures.push(name)
    console.log(`FAILED: ${name}: ${error.stack}`)
    const pages = browser.contexts().flatMap((context) => context.pages())
    for (const [i, page] of pages.entries()) await picture(page, `failed-${name.toLowerCase().replace(/\W+/g, '-')}-${i}`)
  }
}

/** open returns a page of a context of its own. */
export async function open(url, options = {}) {
  const context = await browser.newContext({ viewport: { width: 1280, height: 800 }, ...options })
  const page = await context.newPage()
  page.setDefaultTimeout(20_000)
  // A busy machine starts slowly.
  page.setDefaultNavigationTimeout(60_000)
  page.on('console', (message) => /Content Security Policy/.test(message.text()) && failures.push(message.text()))
  page.on('pageerror', (error) => failures.push(String(error)))
  await page.goto(url)
  return page
}

/** go opens a view, and waits until a text is seen. */
export async function go(page, hash, seen) {
  await page.evaluate((h) => (location.hash = h), hash)
  await page.getByText(seen).first().waitFor()
}

export async function isAccessible(page) {
  // The page's policy allows no script but its own; this evaluates as a debugger does.
  await page.evaluate(axe)
  const { violations } = await page.evaluate(() => window.axe.run())
  assert.deepEqual(violations.map((v) => `${v.id}: ${v.nodes.map((n) => n.html + ' ' + n.failureSummary).slice(0, 3).join(' ')}`), [])
}

/** both looks at a page on a screen and on a phone, in both colour schemes. */
export async function both(page, look) {
  const before = page.viewportSize()
  for (const [size, viewport] of [['screen', { width: 1440, height: 900 }], ['phone', { width: 390, height: 844 }]]) {
    await page.setViewportSize(viewport)
    for (const colorScheme of ['light', 'dark']) {
      await page.emulateMedia({ colorScheme, reducedMotion: 'reduce' })
      await look(`${size}-${colorScheme}`)
    }
  }
  await page.emulateMedia({ colorScheme: 'light', reducedMotion: null })
  await page.setViewportSize(before)
}

/** act opens the dialog of an action, waits for what it says in advance, and confirms it by the button that says what it does. */
export async function act(page, action, { effects, confirm, choose = async () => {}, name = action }) {
  const dialog = page.getByRole('dialog')
  await page.getByRole('button', { name: action, exact: true }).click()
  await choose(dialog)
  await dialog.getByRole('heading', { name: 'This will happen' }).waitFor()
  for (const effect of effects) await dialog.getByText(effect).waitFor()
  await picture(page, `web-${name.toLowerCase().replace(/\W+/g, '-')}`)
  await dialog.getByRole('button', { name: confirm, exact: typeof confirm === 'string' }).click()
  await dialog.waitFor({ state: 'detached' })
  await page.getByRole('status').getByText(/^Done: /).waitFor()
}

/** isNotOffered waits until an action is not possible, and a text on the page says why. */
export async function isNotOffered(page, action, why) {
  const button = page.getByRole('button', { name: action, exact: true }).and(page.locator('[aria-disabled=true]'))
  await button.waitFor()
  await button.click({ force: true })
  assert.equal(await page.getByRole('dialog').count(), 0, action)
  await page.locator(`#${await button.getAttribute('aria-describedby')}`).getByText(why, { exact: true }).waitFor()
}

/** isInView waits until an element is on the screen without scrolling. */
export async function isInView(locator) {
  await locator.waitFor()
  const box = await locator.boundingBox()
  const { width, height } = locator.page().viewportSize()
  const text = await locator.innerText()
  assert.ok(box && box.y >= 0 && box.y + box.height <= height && box.x >= 0 && box.x + box.width <= width, `"${text}" is at ${JSON.stringify(box)}`)
}

/** picture keeps what the page shows, if pictures are wanted. */
export async function picture(page, name) {
  if (!pictures) return
  mkdirSync(pictures, { recursive: true })
  await page.screenshot({ path: `${pictures}/${name}.png` })
}

/** end closes the browser. The script fails if a step did. */
export async function end() {
  await browser.close()
  if (failures.length === 0) return
  console.error(`failed: ${failures.join('; ')}`)
  process.exitCode = 1
}
