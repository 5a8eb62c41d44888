// Which replicas are chosen, and which are offered: pure.
import type { Part } from './api'

/** mostChosen is how many replicas a request for logs may name. */
export const mostChosen = 64

/** mostOffered bounds the list; a search by name reaches the others. */
export const mostOffered = 200

export interface Offer {
  name: string
  role: string
  state: string
}

/** offers returns the replicas that have a log, and those that are chosen and gone. */
export function offers(parts: Part[], chosen: string[]): Offer[] {
  const known = new Set(parts.map((p) => p.name))
  const gone = chosen.filter((name) => !known.has(name)).map((name) => ({ name, role: '', state: 'Missing' }))
  return [...gone, ...parts.filter((p) => p.pod || chosen.includes(p.name))]
}

/** named returns the offers whose name has a text. */
export function named(all: Offer[], text: string): Offer[] {
  const wanted = text.trim().toLowerCase()
  return all.filter((o) => o.name.toLowerCase().includes(wanted))
}

/** roles returns the names of the replicas of each role that has several. */
export function roles(all: Offer[]): [role: string, names: string[]][] {
  const found = new Map<string, string[]>()
  for (const { role, name } of all) if (role) found.set(role, [...(found.get(role) ?? []), name])
  return [...found].filter(([, names]) => names.length > 1)
}

/** chosenWith returns the choice with or without some names, up to the most that may be chosen. */
export function chosenWith(chosen: string[], names: string[], on: boolean): string[] {
  return on ? [...new Set([...chosen, ...names])].slice(0, mostChosen) : chosen.filter((name) => !names.includes(name))
}
