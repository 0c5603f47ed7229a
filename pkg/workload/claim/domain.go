package claim

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// DomainKind says what each device of a node stands for.
type DomainKind uint8

// These are the kinds of domains. Claims share the CPUs of a NUMA node or an L3 domain. A core is for
// one claim: an extended resource counts devices, and so N of it are N cores.
const (
	NUMA DomainKind = iota + 1
	L3
	Core
)

// kindNames and devicePrefixes have the words of the kinds, and what the names of their devices begin with.
var (
	kindNames      = [...]string{NUMA: "numa", L3: "l3", Core: "core"}
	devicePrefixes = [...]string{NUMA: "numa", L3: "l3-", Core: "core"}
)

func (k DomainKind) String() string { return kindNames[k] }

// MarshalText returns the word of the kind.
func (k DomainKind) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// UnmarshalText reads the word of a kind.
func (k *DomainKind) UnmarshalText(text []byte) error {
	i := slices.Index(kindNames[:], string(text))
	if i < 1 {
		return fmt.Errorf("%q is no kind of device: it must be %s", clip(string(text)), strings.Join(kindNames[1:], ", "))
	}
	*k = DomainKind(i)
	return nil
}

// Domain is the part of a machine for which a device stands.
type Domain struct {
	Kind DomainKind
	// Number is that of the NUMA node. An L3 domain or a core has the number of one of its CPUs.
	Number int
}

// String is the name of the domain's device in the ResourceSlice.
func (d Domain) String() string { return devicePrefixes[d.Kind] + strconv.Itoa(d.Number) }

// Place describes the domain in messages.
func (d Domain) Place() string {
	switch d.Kind {
	case L3:
		return fmt.Sprintf("the L3 domain of CPU %d", d.Number)
	case Core:
		return fmt.Sprintf("the core of CPU %d", d.Number)
	default:
		return fmt.Sprintf("NUMA node %d", d.Number)
	}
}

// MarshalText returns the name of the domain's device.
func (d Domain) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText reads the name of a device.
func (d *Domain) UnmarshalText(text []byte) error {
	for kind := NUMA; kind <= Core; kind++ {
		digits, ok := strings.CutPrefix(string(text), devicePrefixes[kind])
		number, err := strconv.Atoi(digits)
		if ok && err == nil && number >= 0 && number <= maxCPUs && strconv.Itoa(number) == digits {
			*d = Domain{kind, number}
			return nil
		}
	}
	return fmt.Errorf("device %q: this driver's devices are called numa0, l3-0 or core0, with a number up to %d", clip(string(text)), maxCPUs)
}
