package annotation

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/sluice-dev/sluice/pkg/workload"
	"github.com/sluice-dev/sluice/topology/cpuset"
)

// set parses a key's value into the request. The error says which values are valid. It does not
// check the grant; see reader.allow for that.
func set(req *workload.Request, k key, value string) (err error) {
	switch k {
	case classKey:
		req.Class, err = workload.ParseClass(value)
		if err != nil {
			err = errors.New("must be LSE, LSR, LS, BE or SYSTEM")
		}
	case poolKey:
		req.Pool, err = parseName(value)
	case cpusKey:
		req.CPUs, err = parseCPUs(value)
	case cpusetKey:
		req.CPUSet, err = parseSet(value)
	case numaKey:
		req.NUMA, err = choose(value, choice[workload.NUMAPolicy]{"single", workload.NUMASingle},
			choice[workload.NUMAPolicy]{"prefer", workload.NUMAPrefer}, choice[workload.NUMAPolicy]{"spread", workload.NUMASpread})
	case smtKey:
		req.SMT, err = choose(value, choice[workload.SMTPolicy]{"full-core", workload.SMTFullCore},
			choice[workload.SMTPolicy]{"one-per-core", workload.SMTOnePerCore}, choice[workload.SMTPolicy]{"any", workload.SMTAny})
	case l3Key:
		req.L3, err = choose(value, choice[workload.L3Policy]{"pack", workload.L3Pack}, choice[workload.L3Policy]{"spread", workload.L3Spread})
	case nearKey:
		req.Near, err = parseNear(value)
	case memoryNodesKey:
		req.MemoryNodes, err = parseMemoryNodes(value)
	case exclusiveKey:
		req.Exclusive, err = choose(value, choice[workload.ExclusiveLevel]{"core", workload.ExclusiveCore},
			choice[workload.ExclusiveLevel]{"node", workload.ExclusiveNode})
	case exclusiveGroupKey:
		req.ExclusiveGroup, err = parseName(value)
	default:
		err = setTuning(&req.Tuning, k, value)
	}
	return err
}

// fill copies the value of a key. Of memory-qos it copies only the fields that are unset in to.
func (k key) fill(to, from *workload.Request) {
	switch k {
	case classKey:
		to.Class = from.Class
	case poolKey:
		to.Pool = from.Pool
	case cpusKey:
		to.CPUs = from.CPUs
	case cpusetKey:
		to.CPUSet = from.CPUSet
	case numaKey:
		to.NUMA = from.NUMA
	case smtKey:
		to.SMT = from.SMT
	case l3Key:
		to.L3 = from.L3
	case nearKey:
		to.Near = from.Near
	case memoryNodesKey:
		to.MemoryNodes = from.MemoryNodes
	case exclusiveKey:
		to.Exclusive = from.Exclusive
	case exclusiveGroupKey:
		to.ExclusiveGroup = from.ExclusiveGroup
	default:
		k.fillTuning(&to.Tuning, &from.Tuning)
	}
}

type choice[T any] struct {
	name  string
	value T
}

func choose[T any](value string, choices ...choice[T]) (chosen T, err error) {
	names := make([]string, len(choices))
	for i, c := range choices {
		if value == c.name {
			return c.value, nil
		}
		names[i] = c.name
	}
	last := len(names) - 1
	return chosen, fmt.Errorf("must be %s or %s", strings.Join(names[:last], ", "), names[last])
}

// parseName parses a name in the alphabet of Kubernetes' label values.
func parseName(value string) (string, error) {
	valid := len(value) > 0 && len(value) <= 63
	for i := 0; valid && i < len(value); i++ {
		c := value[i]
		valid = 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '-' || c == '_' || c == '.'
	}
	if !valid {
		return "", errors.New("must be a name of 1 to 63 letters, digits, '-', '_' and '.'")
	}
	return value, nil
}

func parseCPUs(value string) (int, error) {
	n, err := strconv.ParseUint(value, 10, 16)
	if err != nil || n == 0 || n > cpuset.Max {
		return 0, errors.New("must be a whole number of CPUs, 1 or more")
	}
	return int(n), nil
}

func parseSet(value string) (cpuset.Set, error) {
	cpus, err := cpuset.Parse(value)
	if err == nil && cpus.IsEmpty() {
		err = errors.New("the list is empty")
	}
	if err != nil {
		return cpuset.Set{}, fmt.Errorf("must be a list like 0-3,8: %w", cause(err))
	}
	return cpus, nil
}

func parseMemoryNodes(value string) (workload.MemoryNodes, error) {
	switch value {
	case "local":
		return workload.MemoryNodes{Policy: workload.MemoryLocal}, nil
	case "any":
		return workload.MemoryNodes{Policy: workload.MemoryAny}, nil
	}
	nodes, err := cpuset.Parse(value)
	if err == nil && nodes.IsEmpty() {
		err = errors.New("the list is empty")
	}
	if err != nil {
		return workload.MemoryNodes{}, fmt.Errorf("must be local, any or a list of NUMA nodes like 0-1: %w", cause(err))
	}
	return workload.MemoryNodes{Policy: workload.MemoryListed, Nodes: nodes}, nil
}

// cause returns the inner error if there is one, since the outer error repeats the value.
func cause(err error) error {
	if inner := errors.Unwrap(err); inner != nil {
		return inner
	}
	return err
}

// parseNear parses "device" or a PCI address into the kernel's spelling ("0000:3b:00.0"). As in
// lspci, the domain is optional.
func parseNear(value string) (workload.Near, error) {
	if value == "device" {
		return workload.Near{OwnDevices: true}, nil
	}
	address := strings.ToLower(value)
	if strings.Count(address, ":") == 1 {
		address = "0000:" + address
	}
	if !isPCI(address) {
		return workload.Near{}, errors.New("must be device or a PCI address like 0000:3b:00.0")
	}
	return workload.Near{PCI: address}, nil
}

// isPCI reports whether text is domain:bus:device.function. The domain has at least 4 digits;
// those of Intel VMD start at 10000.
func isPCI(text string) bool {
	domain, rest, _ := strings.Cut(text, ":")
	bus, rest, _ := strings.Cut(rest, ":")
	device, function, _ := strings.Cut(rest, ".")
	return len(domain) >= 4 && len(domain) <= 8 && hex(domain) && len(bus) == 2 && hex(bus) &&
		len(device) == 2 && hex(device) && device < "20" && len(function) == 1 && function >= "0" && function <= "7"
}

func hex(text string) bool { return strings.Trim(text, "0123456789abcdef") == "" }
