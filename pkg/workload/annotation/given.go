package annotation

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/sluice-dev/sluice/pkg/text/suggest"
	"github.com/sluice-dev/sluice/pkg/workload"
)

// Set holds the values that the configuration gives, by the names of their keys without the
// domain.
type Set map[string]Given

// Given is a value that was parsed once, when the configuration was read.
type Given struct {
	Text   string
	key    key
	parsed *workload.Request
}

// Give parses a value that the configuration gives for the key with that name, without the
// domain.
func Give(name, value string) (Given, error) {
	k, ok := keyOf(name)
	if !ok {
		return Given{}, errors.New(unknown(name, keyNames[:givenKeys]))
	}
	value = strings.TrimSpace(value)
	g := Given{Text: value, key: k, parsed: &workload.Request{}}
	return g, set(g.parsed, k, value)
}

// Classes holds the values that the configuration gives to the containers of each class.
// Anything else takes precedence over them.
type Classes struct {
	LSE    Set `yaml:"LSE"`    // Keys for containers of class LSE. Default: CPU priority 2, memory request protected.
	LSR    Set `yaml:"LSR"`    // Keys for containers of class LSR. Default: as LSE.
	LS     Set `yaml:"LS"`     // Keys for containers of class LS.
	BE     Set `yaml:"BE"`     // Keys for containers of class BE. Default: CPU priority -1, early reclaim.
	System Set `yaml:"SYSTEM"` // Keys for containers of class SYSTEM.
}

// Of returns the values for a class.
func (c *Classes) Of(class workload.Class) Set {
	switch class {
	case workload.LSE:
		return c.LSE
	case workload.LSR:
		return c.LSR
	case workload.LS:
		return c.LS
	case workload.BE:
		return c.BE
	case workload.System:
		return c.System
	}
	return nil
}

// Level says which containers a Set is given to.
type Level uint8

// The levels.
const (
	ForPods  Level = iota // pods that a classify rule matches
	ForPool               // containers in a pool
	ForClass              // containers of a class
)

// CheckGiven returns why a key can't be given at a level. The class is used for ForClass only.
func (r *Rules) CheckGiven(level Level, class workload.Class, g Given) error {
	switch {
	case g.key == grantKey:
		return errors.New("is a pod's own: what it was granted can't be given by the configuration")
	case level == ForPool && !g.key.inPool():
		return errors.New("is not a pool's to give; a pool gives cpu-identity, weight, rdt-class, io, egress, oom-score and net-class")
	case level == ForClass && (g.key == classKey || g.key == poolKey):
		return errors.New("is not a class's to give; a classify rule gives it")
	case level == ForClass && !g.key.appliesTo(class):
		return fmt.Errorf("has no effect on class %s", class)
	case level == ForClass && g.key == evictKey && class == workload.BE && g.parsed.Evict.Never:
		return errNeverBE
	}
	switch g.key {
	case poolKey:
		return r.knowsPool(g.parsed.Pool)
	case rdtClassKey:
		return r.knowsRDT(g.parsed.RDT.Class)
	}
	return nil
}

// CheckSetting returns why a classify rule can't set the key with that name, without the
// domain, to a value.
func (r *Rules) CheckSetting(name, value string) error {
	g, err := Give(name, value)
	if err != nil {
		return err
	}
	return r.CheckGiven(ForPods, workload.Unclassified, g)
}

func (r *Rules) knowsPool(name string) error {
	if slices.Contains(r.Pools, name) {
		return nil
	}
	return fmt.Errorf("is no pool of this node, which has %s", strings.Join(r.Pools, ", "))
}

func (r *Rules) knowsRDT(name string) error {
	switch {
	case slices.Contains(r.RDTClasses, name):
		return nil
	case len(r.RDTClasses) == 0:
		return errors.New("is no RDT class of this node, which has none; they are made under rdt.classes in the node's config")
	}
	return fmt.Errorf("is no RDT class of this node, which has %s", strings.Join(r.RDTClasses, ", "))
}

// unknown returns the text that suggests which known key was probably meant.
func unknown(name string, known []string) string {
	if name == "priority" { // key of earlier versions
		return "is not a key any more: evict alone is the order of eviction. Write the number as evict instead, the lower of which goes first"
	}
	if slices.Contains(GivenKeys(), name) {
		return "is not a key that a pod may say: the node's config gives it to classes, pools or the pods that a classify rule matches"
	}
	if near := suggest.To(name, known); near != "" {
		return "is not a key that Sluice knows; did you mean " + near + "?"
	}
	return "is not a key that Sluice knows; the keys are " + strings.Join(known, ", ")
}
