// Changes a job by the buttons of its page: actions.mjs URL VIEWER-URL NAMESPACE
import assert from 'node:assert/strict'
import { end, go, open, picture, step } from './browser.mjs'

const [address, viewer, namespace] = process.argv.slice(2)
const page = await open(address)
const dialog = page.getByRole('dialog')
await go(page, `#/jobs/${namespace}/pong`, 'Conditions')

/** act opens a dialog, waits for what it says in advance, and confirms it. */
async function act(action, effect, choose = async () => {}) {
  await page.getByRole('button', { name: action, exact: true }).click()
  await choose()
  await dialog.getByRole('heading', { name: 'This will happen' }).waitFor()
  await dialog.getByText(effect).waitFor()
  await picture(page, `web-${action.toLowerCase().replace(/\W+/g, '-')}`)
  await dialog.getByRole('button', { name: 'Do it' }).click()
  await dialog.getByRole('heading', { name: 'Done' }).waitFor()
  await dialog.getByRole('button', { name: 'Close' }).click()
  await dialog.waitFor({ state: 'detached' })
}

/** says opens the YAML that the API server has now, and looks for a text. */
async function says(text) {
  await go(page, `#/jobs/${namespace}/pong/manifest`, text)
  await go(page, `#/jobs/${namespace}/pong`, 'Conditions')
}

await step('a job is resized', async () => {
  await act('Resize', 'Task collector changes from 3 to 4 replicas.', () => page.getByLabel('Desired replicas').fill('4'))
  await says('replicas: 4')
  await page.getByText('Ready 0/4').waitFor()
})
await step('a size beyond the bounds is refused in words', async () => {
  await page.getByRole('button', { name: 'Resize' }).click()
  await page.getByLabel('Desired replicas').fill('7')
  await dialog.getByText('must be at most maxReplicas, which is 6').waitFor()
  assert.ok(await dialog.getByRole('button', { name: 'Do it' }).isDisabled())
  await page.keyboard.press('Escape')
})
await step('a replica is restarted', async () => {
  await act('Restart replica', 'Pod pong-collector-1 is deleted, and the operator creates it again.', () =>
    dialog.getByLabel('Replica').selectOption('collector-1'),
  )
})
await step('a job is suspended', async () => {
  await act('Suspend', "The job's pods are deleted")
  await says('suspend: true')
})
await step('a job is resumed', async () => {
  await act('Resume', "The job's pods are created again")
  await says('suspend: false')
})
await step('a viewer is offered nothing, and told why', async () => {
  const reader = await open(viewer)
  await go(reader, `#/jobs/${namespace}/pong`, 'Conditions')
  for (const action of ['Suspend', 'Resume', 'Resize', 'Restart replica', 'Delete']) {
    const button = reader.getByRole('button', { name: action, exact: true })
    assert.equal(await button.getAttribute('aria-disabled'), 'true', action)
    await button.click({ force: true })
    assert.equal(await reader.getByRole('dialog').count(), 0, action)
    await reader.getByText(/^Not possible: .+/).and(reader.locator(':visible')).first().waitFor()
  }
  await picture(reader, 'web-viewer')
})
await end()
