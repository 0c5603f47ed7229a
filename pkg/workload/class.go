// Package workload describes what runs on the node and what was asked for it: pods, containers,
// classes and requests. It contains data only, and knows neither the runtime nor the kernel.
package workload

import "fmt"

// Class is a pod's service class, by Koordinator's names.
type Class uint8

// The classes.
const (
	Unclassified Class = iota
	LSE                // whole cores of its own, shared with nobody
	LSR                // CPUs of its own
	LS                 // CPUs of an online pool
	BE                 // CPUs of the batch pool
	System             // CPUs of the system set
)

var classNames = [...]string{"", "LSE", "LSR", "LS", "BE", "SYSTEM"}

// Classes lists the names that ParseClass accepts.
func Classes() []string { return classNames[1:] }

func (c Class) String() string { return classNames[c] }

// Pinned reports whether containers of the class have CPUs of their own.
func (c Class) Pinned() bool { return c == LSE || c == LSR }

// ParseClass parses the name of a class.
func ParseClass(name string) (Class, error) {
	for i, known := range classNames[1:] {
		if name == known {
			return Class(i + 1), nil
		}
	}
	return Unclassified, fmt.Errorf("class %.40q: the classes are LSE, LSR, LS, BE and SYSTEM", name)
}

// MarshalText returns the name of the class.
func (c Class) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

// UnmarshalText parses the name of a class. The empty text is Unclassified.
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

// MarshalText returns the name of the QoS class.
func (q QoS) MarshalText() ([]byte, error) { return []byte(q.String()), nil }
