// Looks whether the labels of curves are drawn whole, also where a label is at the end of the axis, and what pods used by
// Prometheus: curves.mjs URL NAMESPACE
import assert from 'node:assert/strict'
import { end, go, open, picture, step } from './browser.mjs'

const [address, namespace] = process.argv.slice(2)
const day = 24 * 3600 * 1000
const page = await open(address, { timezoneId: 'UTC' })

/** record keeps what is drawn on canvases: a text and its ends, in pixels of the canvas. */
function record() {
  const { fillText } = CanvasRenderingContext2D.prototype
  window.drawn = []
  CanvasRenderingContext2D.prototype.fillText = function (text, x, y, ...more) {
    const width = this.measureText(text).width
    const left = this.getTransform().e + x - { center: width / 2, right: width, end: width }[this.textAlign] || 0
    window.drawn.push({ text, left, right: left + width, most: this.canvas.width })
    return fillText.call(this, text, x, y, ...more)
  }
}
await page.addInitScript(record)
await page.reload()
await step('what the pods used is drawn with the other curves, and the page says where it comes from', async () => {
  for (const [tab, title] of [['', 'Curves'], ['/timeline', 'What happened']]) {
    await go(page, '#/cluster', /^Nodes$/)
    assert.equal(await page.getByText('Waiting jobs').count(), 0, 'no job waits')
    await go(page, `#/jobs/${namespace}/pong${tab}`, title)
    await page.getByRole('figure', { name: /^learner GPU utilisation % \(mean\): last 62/ }).waitFor()
    await page.getByText('What the pods used is what Prometheus has').waitFor()
  }
  const cpu = page.getByRole('figure', { name: /^learner CPU cores \(sum\): last 3/ })
  await cpu.waitFor()
  await cpu.scrollIntoViewIfNeeded()
  await picture(page, 'web-curves-usage')
})

// At midnight, each range of time ends at a label. All of the time is more than a day, whose labels have dates.
await page.clock.setFixedTime((Math.floor(Date.now() / day) + 2) * day)

/** labels returns the times that are drawn once a width is new. */
async function labels(width) {
  const times = () => page.evaluate(() => window.drawn.filter((one) => /\d:\d\d/.test(one.text)))
  await page.evaluate(() => (window.drawn = []))
  await page.setViewportSize({ width, height: 800 })
  for (const until = Date.now() + 10_000; (await times()).length === 0 && Date.now() < until; ) await page.waitForTimeout(20)
  return times()
}

for (const [size, width] of [['a screen', 1280], ['a phone', 390]]) {
  for (const range of ['All', '24 h', '6 h', '1 h', '15 min']) {
    await step(`all labels of ${range} are whole on ${size}`, async () => {
      await go(page, '#/cluster', /^Nodes$/)
      await go(page, `#/jobs/${namespace}/pong/timeline`, 'What happened')
      await page.getByRole('figure', { name: /^reward/ }).waitFor()
      await page.getByRole('button', { name: range, exact: true }).click()
      const drawn = await labels(width - 10)
      assert.ok(drawn.some((one) => one.text.endsWith('00:00')), `no label is at the end: ${JSON.stringify(drawn)}`)
      assert.deepEqual(drawn.filter((one) => one.left < 0 || one.right > one.most), [])
      await picture(page, `web-curves-${range.replace(' ', '-')}-${width}`)
      await page.setViewportSize({ width, height: 800 })
    })
  }
}
await end()
