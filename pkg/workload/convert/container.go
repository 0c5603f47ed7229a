package convert

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/sluice-dev/sluice/pkg/text/quantity"
)

// tooMuch is above what any machine has, in CPUs or bytes. The policies have the same bound.
const tooMuch = 4e15

// container is what one container asks for.
type container struct {
	node         *yaml.Node
	name         string
	milli, bytes int64  // of the batch resources in the end
	cpu, memory  string // as the manifest has them; "" if it has none
	limited      bool   // memory is the limit, which is above the request
}

// container reads a container's requests as the API server completes them: a missing request is the limit.
// Of memory the limit counts, since the kernel kills a container that exceeds what it was granted.
func (c *converter) container(node *yaml.Node) (container, error) {
	requests, limits := at(node, "resources", "requests"), at(node, "resources", "limits")
	read := container{node: node, name: text(node, "name")}
	request := func(name string) string {
		if index(requests, name) >= 0 {
			return text(requests, name)
		}
		return text(limits, name)
	}
	read.cpu, read.memory = request("cpu"), request("memory")
	limit, err := amount(text(limits, "memory"))
	if err != nil {
		return read, fmt.Errorf("has a memory limit of %q, which %w", text(limits, "memory"), err)
	}
	if limit > 0 {
		read.limited = read.memory != text(limits, "memory")
		read.memory = text(limits, "memory")
	}
	for _, ask := range []struct {
		text string
		into *int64
		unit int64
	}{{read.cpu, &read.milli, 1000}, {read.memory, &read.bytes, 1}, {request(c.target.CPU), &read.milli, 1}, {request(c.target.Memory), &read.bytes, 1}} {
		q, err := amount(ask.text)
		if err != nil {
			return read, fmt.Errorf("asks for %q, which %w", ask.text, err)
		}
		if ask.unit == 1 {
			*ask.into += q.Value()
		} else {
			*ask.into += int64(q)
		}
	}
	return read, nil
}

// amount parses a resource amount; "" is 0.
func amount(text string) (quantity.Amount, error) {
	if text == "" {
		return 0, nil
	}
	q, err := quantity.Parse(text)
	if err == nil && q.Value() >= tooMuch {
		err = errors.New("is more than any machine has")
	}
	return q, err
}

// move replaces CPU and memory by the batch resources, and returns a text that says so; "" if the container
// asks for neither.
func (c *container) move(t *Target) string {
	resources := at(c.node, "resources")
	requests, limits := at(resources, "requests"), at(resources, "limits")
	if !asksFor(requests) && !asksFor(limits) {
		return ""
	}
	milli, bytes := strconv.FormatInt(c.milli, 10), strconv.FormatInt(c.bytes, 10)
	if q, err := quantity.Parse(c.memory); err == nil && int64(q) == c.bytes*1000 {
		bytes = c.memory // as it was written
	}
	if !isMapping(limits) {
		limits = child(resources, "limits")
	}
	for _, list := range []*yaml.Node{requests, limits} {
		if !isMapping(list) {
			continue
		}
		replace(list, "cpu", t.CPU, c.milli, milli)
		replace(list, "memory", t.Memory, c.bytes, bytes)
	}
	for _, key := range []string{"requests", "limits"} {
		if list := at(resources, key); list != nil && len(list.Content) == 0 {
			remove(resources, key)
		}
	}
	return c.describe(t, milli, bytes)
}

func asksFor(list *yaml.Node) bool { return index(list, "cpu") >= 0 || index(list, "memory") >= 0 }

// replace puts an amount under a new name in the place of the old one. It removes both if the amount is 0.
func replace(list *yaml.Node, old, name string, value int64, text string) {
	if i := index(list, old); i >= 0 && index(list, name) < 0 {
		list.Content[i].Value = name
	}
	remove(list, old)
	if value == 0 {
		remove(list, name)
		return
	}
	set(list, name, text)
}

// describe says what became of CPU and memory.
func (c *container) describe(t *Target, milli, bytes string) string {
	var parts []string
	if c.cpu != "" {
		parts = append(parts, became("cpu "+c.cpu, t.CPU, c.milli, milli))
	}
	if c.memory != "" {
		what := "memory "
		if c.limited {
			what = "the memory limit (not the request) "
		}
		parts = append(parts, became(what+c.memory, t.Memory, c.bytes, bytes))
	}
	return strings.Join(parts, "; ")
}

func became(old, name string, value int64, text string) string {
	if value == 0 {
		return old + " is dropped"
	}
	return old + " becomes " + name + " " + text
}
