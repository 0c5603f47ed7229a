// Package workload says what runs on the node and what was asked for it: pods,
// containers, classes and requests. Pure data; nothing here knows the runtime
// or the kernel.
package workload

import "fmt"

// Class is a pod's service class, by Koordinator's names.
type Class uint8

// The classes.
const (
	Unclassified Class = iota
	LSE                // own whole cores, shared with nobody
	LSR                // own CPUs
	LS                 // the online pools
	BE                 // the batch pool
	System             // the system set
)

var classNames = [...]string{"", "LSE", "LSR", "LS", "BE", "SYSTEM"}

// Classes lists the names that ParseClass takes.
func Classes() []string { return classNames[1:] }

func (c Class) String() string { return classNames[c] }

// Pinned reports whether containers of the class have CPUs of their own.
func (c Class) Pinned() bool { return c == LSE || c == LSR }

// ParseClass reads a class's name.
func ParseClass(name string) (Class, error) {
	for i, known := range classNames[1:] {
		if name == known {
			return Class(i + 1), nil
		}
	}
	return Unclassified, fmt.Errorf("class %.40q: the classes are LSE, LSR, LS, BE and SYSTEM", name)
}

// MarshalText writes the class's name.
func (c Class) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

// UnmarshalText reads a class's name; the empty text is Unclassified.
func (c *Class) UnmarshalText(text []byte) error {
	if len(text) == 0 {
		*c = Unclassified
		return nil
	}
	parsed, err := ParseClass(string(text))
	*c = parsed
	return err
}

// QoS is Kubernetes' quality-of-service class, which the kubelet derives from
// requests and limits.
type QoS uint8

// The Kubernetes QoS classes; UnknownQoS is a pod outside the kubelet's tree.
const (
	UnknownQoS QoS = iota
	Guaranteed
	Burstable
	BestEffort
)

var qosNames = [...]string{"", "Guaranteed", "Burstable", "BestEffort"}

func (q QoS) String() string { return qosNames[q] }

// MarshalText writes the QoS class's name.
func (q QoS) MarshalText() ([]byte, error) { return []byte(q.String()), nil }
