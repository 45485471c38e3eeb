// Prints the output of `crier-bench … --json` and of the peers as one table: node table.mjs [--json] NAME=FILE…
//
// The first columns are the files, in the given order, followed by the ratios of `split` to each peer. Higher is better
// for a rate; lower is better for a time or a size.

import { readFileSync } from 'node:fs'

const args = process.argv.slice(2)
const files = args.filter((arg) => arg.includes('=')).map((arg) => arg.split('='))
const results = new Map(files.map(([name, file]) => [name, JSON.parse(readFileSync(file, 'utf8'))]))

if (args.includes('--json')) {
  console.log(JSON.stringify(Object.fromEntries(results), null, 2))
  process.exit()
}

const peers = [...results.keys()].filter((name) => !name.startsWith('crier'))
const ours = 'crier split'
const key = (figure) => `${figure.measurement}\t${figure.figure}`
const byKey = new Map([...results].map(([name, figures]) => [name, new Map(figures.map((f) => [key(f), f]))]))

function quantity({ value, unit }) {
  if (typeof value === 'string') return value
  switch (unit) {
    case 'connections':
      return `${value} ${unit}`
    case 'ms':
      if (value < 1) return `${(value * 1e3).toFixed(0)} µs`
      if (value < 10) return `${value.toFixed(2)} ms`
      return value < 1e3 ? `${value.toFixed(0)} ms` : `${(value / 1e3).toFixed(2)} s`
    case 'bytes':
      if (value < 1e5) return `${(value / 1e3).toFixed(1)} kB`
      return `${(value / 1e6).toFixed(1)} MB`
    case 'times':
      return `${value.toFixed(2)} ×`
    default:
      return `${value < 100 ? value.toFixed(1) : value.toFixed(0)} ${unit}`
  }
}

const table = [['MEASUREMENT', 'FIGURE', ...results.keys(), ...peers.map((peer) => `${ours} / ${peer}`)]]
let last
for (const figure of results.get(ours)) {
  if (figure.measurement === 'machine') continue
  const of = (name) => byKey.get(name).get(key(figure))
  // Peers do not have all figures: they dispatch as part of fetching, and do not publish.
  const cells = [...results.keys()].map((name) => (of(name) ? quantity(of(name)) : 'none'))
  const ratio = (peer) => (of(peer)?.value > 0 ? `${(figure.value / of(peer).value).toFixed(2)} ×` : '')
  const ratios = peers.map(ratio)
  table.push([figure.measurement === last ? '' : figure.measurement, figure.figure, ...cells, ...ratios])
  last = figure.measurement
}
const widths = table[0].map((_, i) => Math.max(...table.map((row) => row[i].length)))
for (const [name, figures] of results) {
  const machine = figures.filter((f) => f.measurement === 'machine').map((f) => `${f.figure} ${f.value}`)
  console.log(`${name}: ${machine.join('; ')}`)
}
console.log()
for (const row of table) {
  console.log(row.map((cell, i) => (i < 2 ? cell.padEnd(widths[i]) : cell.padStart(widths[i]))).join('  ').trimEnd())
}
