// Changes a job by the buttons of its page: actions.mjs URL VIEWER-URL NAMESPACE
import assert from 'node:assert/strict'
import { act, end, go, isNotOffered, open, picture, step } from './browser.mjs'

const [address, viewer, namespace] = process.argv.slice(2)
const page = await open(address)
const dialog = page.getByRole('dialog')
await go(page, `#/jobs/${namespace}/pong`, 'Conditions')

/** says opens the YAML that the API server has now, and looks for a text. */
async function says(text) {
  await go(page, `#/jobs/${namespace}/pong/manifest`, text)
  await go(page, `#/jobs/${namespace}/pong`, 'Conditions')
}

await step('a job is resized', async () => {
  const choose = (dialog) => dialog.getByLabel('Desired replicas').fill('4')
  await act(page, 'Resize', { effects: ['The replicas of task collector change from 3 to 4.'], confirm: 'Resize to 4', choose })
  await says('replicas: 4')
  await page.locator('.stats').getByText('0/4', { exact: true }).waitFor()
})
await step('a size beyond the bounds is refused in words', async () => {
  await page.getByRole('button', { name: 'Resize' }).click()
  await page.getByLabel('Desired replicas').fill('7')
  await dialog.getByText('must be at most maxReplicas, which is 6').waitFor()
  assert.ok(await dialog.getByRole('button', { name: 'Resize to 7' }).isDisabled())
  await dialog.getByText('1 to 6', { exact: true }).waitFor()
  await page.keyboard.press('Escape')
})
await step('the size that a job has is not asked for again', async () => {
  await page.getByRole('button', { name: 'Resize', exact: true }).click()
  await dialog.getByText('It has 4 already.').waitFor()
  assert.ok(await dialog.getByRole('button', { name: 'Resize to 4' }).isDisabled())
  await page.keyboard.press('Escape')
})
await step('a running job is deleted only after its name is typed', async () => {
  await page.getByRole('button', { name: 'Delete', exact: true }).click()
  await dialog.getByText('Its logs, its status and its plans are gone for good.').waitFor()
  const button = dialog.getByRole('button', { name: 'Delete pong' })
  await dialog.getByLabel(/^The job runs/).fill('pon')
  await dialog.getByText('Type the name first.').waitFor()
  assert.ok(await button.isDisabled())
  await dialog.getByLabel(/^The job runs/).fill('pong')
  await page.locator('dialog button.main:enabled').waitFor()
  await page.keyboard.press('Escape')
  await dialog.waitFor({ state: 'detached' })
})
await step('a replica is restarted', async () => {
  const choose = (dialog) => dialog.getByLabel('Replica').selectOption('collector-1')
  await act(page, 'Restart replica', { effects: ['Pod pong-collector-1 is deleted, and the operator creates it again.'], confirm: 'Restart collector-1', choose })
})
await step('a job is suspended', async () => {
  await act(page, 'Suspend', { effects: ["The job's pods are deleted"], confirm: 'Suspend pong' })
  await says('suspend: true')
})
await step('a job is resumed', async () => {
  await act(page, 'Resume', { effects: ["The job's pods are created again"], confirm: 'Resume pong' })
  await says('suspend: false')
})
await step('a viewer is offered nothing, and told why', async () => {
  const reader = await open(viewer)
  await go(reader, `#/jobs/${namespace}/pong`, 'Conditions')
  for (const action of ['Suspend', 'Resize', 'Restart replica', 'Delete']) {
    await isNotOffered(reader, action, 'Suspend, Resize, Restart replica, Delete: You do not have the right.')
  }
  await picture(reader, 'web-viewer')
})
await end()
