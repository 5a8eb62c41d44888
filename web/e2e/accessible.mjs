// Looks at every view as axe does, in each colour scheme, in Chinese and on a phone: accessible.mjs URL VIEWER-URL CONTROL-URL NAMESPACE
import assert from 'node:assert/strict'
import { end, isAccessible, open, picture, step } from './browser.mjs'

const [address, viewer, control, namespace] = process.argv.slice(2)
const job = (name, tab = '') => `#/jobs/${namespace}/${name}${tab}`

/** dialogOf opens the dialog of an action. Its place is the same in each language. */
const dialogOf = (action) => (page) => page.locator('.actions button').nth({ suspend: 0, resume: 0, resize: 1, restart: 2, delete: 3 }[action]).click()

// What is seen last is found by its place, because texts differ by language.
const views = [
  { name: 'jobs', hash: '#/jobs', seen: 'tr[data-row]' },
  { name: 'no jobs', hash: '#/jobs?search=nothing', seen: '.problem' },
  { name: 'chosen', hash: '#/jobs', open: (page) => page.locator('tbody .c-pick input').first().check(), seen: '.bulk' },
  { name: 'palette', hash: '#/jobs', open: (page) => page.keyboard.press('Control+k'), seen: '.palette li' },
  { name: 'create', hash: '#/new', open: (page) => page.locator('textarea').fill('kind: Pod'), seen: '.findings li' },
  { name: 'coordinator-led', hash: job('breakout'), seen: '.conditions li' },
  { name: 'failed', hash: job('failed'), seen: '.why:has(a) li' },
  { name: 'finished', hash: job('failed'), seen: '.result' },
  { name: 'waiting', hash: job('waiting'), seen: '.why li' },
  { name: 'no job', hash: job('none'), seen: '.problem' },
  { name: 'running', hash: job('curves'), seen: '.chart canvas' },
  { name: 'whole cause', hash: job('failed'), open: (page) => page.locator('.why summary').click(), seen: '.why pre:visible' },
  { name: 'timeline', hash: job('curves', '/timeline'), seen: '.moments li' },
  { name: 'curves', hash: job('curves', '/timeline'), seen: '.chart:nth-of-type(2) canvas' },
  { name: 'found', hash: job('curves', '/timeline'), open: (page) => page.locator('input[type=time]').fill('14:05'), seen: '.moments .found' },
  { name: 'logs', hash: job('pong', '/logs'), seen: '.lines' },
  { name: 'no logs', hash: job('pong', '/logs'), seen: '[role=alert]', of: 'viewer' },
  { name: 'yaml', hash: job('pong', '/manifest'), seen: 'pre' },
  { name: 'difference', hash: job('pong', '/manifest'), open: (page) => page.locator('.chip').last().click(), seen: '.diff .added' },
  { name: 'cluster', hash: '#/cluster', seen: '.nodes tbody tr' },
  { name: 'suspend', hash: job('pong'), open: dialogOf('suspend'), seen: 'dialog li' },
  { name: 'resume', hash: job('paused'), open: dialogOf('resume'), seen: 'dialog li' },
  { name: 'resize', hash: job('pong'), open: dialogOf('resize'), seen: 'dialog li' },
  { name: 'resize refused', hash: job('pong'), open: tooLarge, seen: 'dialog .banner' },
  { name: 'restart', hash: job('pong'), open: dialogOf('restart'), seen: 'dialog li' },
  { name: 'delete', hash: job('pong'), open: dialogOf('delete'), seen: 'dialog li' },
  { name: 'not possible', hash: job('pong'), open: (page) => page.locator('.refused summary').click(), seen: '.refused pre', of: 'viewer' },
]
const modes = {
  light: {},
  dark: { colorScheme: 'dark' },
  chinese: { language: 'zh' },
  phone: { viewport: { width: 390, height: 844 } },
  'dark chinese phone': { colorScheme: 'dark', language: 'zh', viewport: { width: 390, height: 844 } },
}

async function tooLarge(page) {
  await dialogOf('resize')(page)
  await page.locator('dialog input').fill('99')
}

const pages = { user: await open(address), viewer: await open(viewer) }

await step('a curve has two points', async () => {
  const page = pages.user
  await page.evaluate((hash) => (location.hash = hash), job('curves', '/timeline'))
  const reward = page.getByRole('figure', { name: /^reward/ })
  await reward.waitFor()
  assert.ok((await fetch(`${control}/report`)).ok)
  await page.getByRole('figure', { name: /^reward.*from (.+) to (?!\1$)/ }).waitFor()
})
for (const [mode, { colorScheme = 'light', language = 'en', viewport = { width: 1440, height: 900 } }] of Object.entries(modes)) {
  for (const page of Object.values(pages)) {
    // While a colour changes, its contrast is less.
    await page.emulateMedia({ colorScheme, reducedMotion: 'reduce' })
    await page.setViewportSize(viewport)
    await page.locator('header select').first().selectOption(language)
  }
  for (const { name, hash, open: prepare = async () => {}, seen, of = 'user' } of views) {
    await step(`${name} is accessible: ${mode}`, async () => {
      const page = pages[of]
      // The state of the view before must not remain.
      await page.evaluate(() => (location.hash = '#/jobs?search=-'))
      await page.evaluate((h) => (location.hash = h), hash)
      await page.locator(`main :is(h1, .banner)`).first().waitFor()
      await prepare(page)
      await page.locator(seen).first().waitFor()
      await picture(page, `view-${name}-${mode}`.replace(/ /g, '-'))
      try {
        await isAccessible(page)
        assert.ok(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth), 'it is wider than the screen')
      } finally {
        await page.keyboard.press('Escape')
        await page.locator('dialog').waitFor({ state: 'detached' })
      }
    })
  }
}
await end()
