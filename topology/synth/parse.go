package synth

import (
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/sluice-dev/sluice/topology"
	"github.com/sluice-dev/sluice/topology/cpuset"
)

// Parse parses a machine's description; see the package for its clauses. The error for an
// unknown word suggests the nearest known one.
func Parse(text string) (Spec, error) {
	p := parser{
		spec: Spec{
			packages: 1, dies: 1, nodes: 1, cores: 1, threads: 1,
			memory:     16 << 30,
			nodeMemory: map[int]int64{},
			without:    map[string]bool{},
		},
		seen: map[string]bool{},
	}
	for line := range strings.Lines(text) {
		line, _, _ = strings.Cut(line, "#")
		p.words = append(p.words, strings.Fields(line)...)
	}
	err := p.clauses()
	if err == nil {
		err = p.spec.complete()
	}
	if err != nil {
		return Spec{}, fmt.Errorf("machine %.200q: %w", strings.Join(p.words, " "), err)
	}
	return p.spec, nil
}

type parser struct {
	words []string
	at    int
	seen  map[string]bool
	spec  Spec
}

var keywords = []string{
	"packages", "dies", "nodes", "cores", "threads", // the levels
	"efficiency", "l3", "cluster", "memory", "node", "memory-nodes",
	"numbering", "offline", "isolated", "nohz-full", "cpu-packages", "device", "without",
}

var repeatable = []string{"node", "device", "without"}

func (p *parser) clauses() error {
	for p.at < len(p.words) {
		word := p.next()
		var err error
		if n, number := strconv.Atoi(word); number == nil {
			err = p.level(n)
		} else {
			err = p.option(word)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// level parses the unit of a count, in the singular or plural.
func (p *parser) level(n int) error {
	s := &p.spec
	levels := []struct {
		one, many string
		count     *int
	}{
		{"package", "packages", &s.packages}, {"die", "dies", &s.dies}, {"node", "nodes", &s.nodes},
		{"core", "cores", &s.cores}, {"thread", "threads", &s.threads},
	}
	unit := p.next()
	for _, level := range levels {
		if unit != level.one && unit != level.many {
			continue
		}
		if n < 1 || n > cpuset.Max {
			return fmt.Errorf("%d %s: a count is from 1 to %d", n, unit, cpuset.Max)
		}
		*level.count = n
		return p.once(level.many)
	}
	return unknown(fmt.Sprintf("what %d counts", n), unit, keywords[:len(levels)])
}

func (p *parser) option(word string) (err error) {
	if !slices.Contains(keywords, word) {
		return unknown("the clause", word, keywords)
	}
	if err := p.once(word); err != nil {
		return err
	}
	s := &p.spec
	switch word {
	case "efficiency":
		s.efficiency, err = p.count(word)
	case "l3":
		s.l3Cores, err = p.coresEach(word)
	case "cluster":
		s.clusterCores, err = p.coresEach(word)
	case "memory":
		s.memory, err = p.size(word)
	case "node":
		err = p.node()
	case "memory-nodes":
		if s.memoryNodes, err = p.count(word); err == nil {
			s.farMemory, err = p.size(word)
		}
	case "numbering":
		var how string
		how, err = p.choice(word, "linux", "adjacent")
		s.adjacent = how == "adjacent"
	case "offline":
		s.offline, err = p.list(word)
	case "isolated":
		s.isolated, err = p.list(word)
	case "nohz-full":
		s.noHzFull, err = p.list(word)
	case "cpu-packages":
		s.cpuPackages = true
	case "device":
		err = p.device()
	case "without":
		var what string
		what, err = p.choice(word, "cache", "cache-ids", "dies", "nodes", "tiers")
		s.without[what] = true
	default:
		err = fmt.Errorf("%s comes after its number, like \"2 %s\"", word, word)
	}
	return err
}

func (p *parser) next() string {
	if p.at == len(p.words) {
		return ""
	}
	p.at++
	return p.words[p.at-1]
}

func (p *parser) once(word string) error {
	if p.seen[word] && !slices.Contains(repeatable, word) {
		return fmt.Errorf("%s is given twice", word)
	}
	p.seen[word] = true
	return nil
}

func (p *parser) count(of string) (int, error) {
	word := p.next()
	n, err := strconv.Atoi(word)
	if err != nil || n < 1 || n > cpuset.Max {
		return 0, fmt.Errorf("%s %.40q: expected a number from 1 to %d", of, word, cpuset.Max)
	}
	return n, nil
}

func (p *parser) coresEach(of string) (int, error) {
	n, err := p.count(of)
	if err != nil {
		return 0, err
	}
	if unit := p.next(); unit != "cores" && unit != "core" {
		return 0, fmt.Errorf("%s %d %.40q: expected \"%s %d cores\"", of, n, unit, of, n)
	}
	return n, nil
}

func (p *parser) choice(of string, known ...string) (string, error) {
	word := p.next()
	if !slices.Contains(known, word) {
		return "", unknown(of, word, known)
	}
	return word, nil
}

func (p *parser) list(of string) (cpuset.Set, error) {
	set, err := cpuset.Parse(p.next())
	if err == nil && set.IsEmpty() {
		err = fmt.Errorf("expected a CPU list like 2-3,8")
	}
	if err != nil {
		return set, fmt.Errorf("%s: %w", of, err)
	}
	return set, nil
}

// size parses an amount of memory, which the kernel reports in KiB.
func (p *parser) size(of string) (int64, error) {
	word := p.next()
	if word == "0" {
		return 0, nil
	}
	if word != "" {
		n, err := strconv.ParseInt(word[:len(word)-1], 10, 64)
		unit := strings.IndexByte("KMGT", word[len(word)-1])
		if err == nil && unit >= 0 && n >= 0 && n <= math.MaxInt64>>(10*(unit+1))/(2*cpuset.Max) {
			return n << (10 * (unit + 1)), nil
		}
	}
	return 0, fmt.Errorf("%s %.40q: expected an amount of memory like 64G, of K, M, G or T", of, word)
}

func (p *parser) node() error {
	id, err := p.number("node")
	if err != nil {
		return err
	}
	if _, err := p.choice(fmt.Sprintf("node %d", id), "memory"); err != nil {
		return err
	}
	if _, ok := p.spec.nodeMemory[id]; ok {
		return fmt.Errorf("node %d memory is given twice", id)
	}
	p.spec.nodeMemory[id], err = p.size("memory")
	return err
}

// number parses a number that may be 0.
func (p *parser) number(of string) (int, error) {
	word := p.next()
	n, err := strconv.Atoi(word)
	if err != nil || n < 0 {
		return 0, fmt.Errorf("%s %.40q: expected its number", of, word)
	}
	return n, nil
}

var (
	pciAddress   = regexp.MustCompile(`^[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]$`)
	deviceNumber = regexp.MustCompile(`^[0-9]{1,4}:[0-9]{1,7}$`)
)

func (p *parser) device() error {
	d := device{address: p.next(), node: topology.None}
	if !pciAddress.MatchString(d.address) {
		return fmt.Errorf("device %.40q: expected a PCI address like 0000:3b:00.0", d.address)
	}
	for _, other := range p.spec.devices {
		if other.address == d.address {
			return fmt.Errorf("device %s is given twice", d.address)
		}
	}
	// "node" may also start the next clause, "node 1 memory 0".
	if p.peek(0) == "node" && p.peek(2) != "memory" {
		p.next()
		var err error
		if d.node, err = p.number("node"); err != nil {
			return err
		}
	}
	if kind := p.peek(0); kind == "char" || kind == "block" {
		p.next()
		d.block = kind == "block"
		if d.number = p.next(); !deviceNumber.MatchString(d.number) {
			return fmt.Errorf("device %s %s %.40q: expected major:minor, like 226:0", d.address, kind, d.number)
		}
	}
	p.spec.devices = append(p.spec.devices, d)
	return nil
}

func (p *parser) peek(ahead int) string {
	if p.at+ahead >= len(p.words) {
		return ""
	}
	return p.words[p.at+ahead]
}
