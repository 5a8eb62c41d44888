// Signs in to the page that the chart serves: incluster.mjs URL TOKEN JOB
import assert from 'node:assert/strict'
import { end, isAccessible, open, picture, step } from './browser.mjs'

const [address, token, job] = process.argv.slice(2)
// The test signed the certificate.
const page = await open(address, { ignoreHTTPSErrors: true })

await step('a token that the API server does not know is refused', async () => {
  await page.getByLabel('Bearer token').fill('unknown')
  await page.getByRole('button', { name: 'Sign in' }).click()
  await page.getByRole('alert').getByText('the API server does not accept it').waitFor()
  await isAccessible(page)
})
await step('a service account signs in, and sees its jobs', async () => {
  await page.getByLabel('Bearer token').fill(token)
  await picture(page, 'web-sign-in')
  await page.getByRole('button', { name: 'Sign in' }).click()
  await page.getByRole('link', { name: job, exact: true }).waitFor()
  await page.getByRole('link', { name: job, exact: true }).click()
  await page.getByText('Conditions').waitFor()
  await picture(page, 'web-in-cluster')
})
await step('the cookie is for TLS, and no script reads it', async () => {
  const cookies = await page.context().cookies()
  assert.deepEqual(cookies.map(({ name, secure, httpOnly, sameSite }) => ({ name, secure, httpOnly, sameSite })),
    [{ name: '__Host-di-ui', secure: true, httpOnly: true, sameSite: 'Strict' }])
})
await step('signing out ends the session', async () => {
  await page.getByRole('button', { name: 'Sign out' }).click()
  await page.getByLabel('Bearer token').waitFor()
  await page.goto(address)
  await page.getByLabel('Bearer token').waitFor()
})
await end()
