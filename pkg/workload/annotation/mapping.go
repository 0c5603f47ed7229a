package annotation

import (
	"errors"
	"fmt"
	"io"
	"math"
	"path"
	"slices"
	"strconv"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/sluice-dev/sluice/pkg/text/quantity"
	"github.com/sluice-dev/sluice/pkg/text/suggest"
	"github.com/sluice-dev/sluice/pkg/workload"
)

// field reads one key of a mapping.
type field struct {
	name string
	read func(*yaml.Node) error
}

// parseMapping parses YAML or JSON, and passes each key to its field.
func parseMapping(text string, fields ...field) error {
	node, err := decodeMapping(text, fields[0].name)
	if err != nil {
		return err
	}
	return readMapping(node, fields)
}

// decodeMapping decodes YAML or JSON that is one mapping. Like is the beginning of an example
// for the error.
func decodeMapping(text, like string) (*yaml.Node, error) {
	decoder := yaml.NewDecoder(strings.NewReader(text))
	var document, more yaml.Node
	if err := decoder.Decode(&document); err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("must be a mapping in YAML or JSON: %s", strings.TrimPrefix(err.Error(), "yaml: "))
	}
	if err := decoder.Decode(&more); !errors.Is(err, io.EOF) || document.Kind != yaml.DocumentNode || document.Content[0].Kind != yaml.MappingNode {
		return nil, errNoMapping(like)
	}
	return document.Content[0], nil
}

func errNoMapping(like string) error {
	return fmt.Errorf("must be one mapping in YAML or JSON, like {%s: …}", like)
}

// readMapping reads scalars as text and follows no alias, so that the work is bounded by the
// length of the text.
func readMapping(node *yaml.Node, fields []field) error {
	if node.Kind != yaml.MappingNode {
		return errNoMapping(fields[0].name)
	}
	seen := map[string]bool{}
	for i := 0; i+1 < len(node.Content); i += 2 {
		name, value := node.Content[i].Value, node.Content[i+1]
		if seen[name] {
			return fmt.Errorf("%s is there twice", quote(name))
		}
		seen[name] = true
		f := slices.IndexFunc(fields, func(f field) bool { return f.name == name })
		if f < 0 {
			return unknownField(name, fields)
		}
		if err := fields[f].read(value); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

func unknownField(name string, fields []field) error {
	known := make([]string, len(fields))
	for i := range fields {
		known[i] = fields[i].name
	}
	if near := suggest.To(name, known); near != "" {
		return fmt.Errorf("there is no %s in it; did you mean %s?", quote(name), near)
	}
	return fmt.Errorf("there is no %s in it, but %s", quote(name), strings.Join(known, ", "))
}

// numberField parses a whole number.
func numberField(name string, into *workload.Optional[int], least, most int) field {
	return field{name, func(node *yaml.Node) (err error) {
		*into, err = parseNumber(scalar(node), least, most)
		return err
	}}
}

// amountField parses a Kubernetes quantity of 1 or more.
func amountField(name string, into *int64, most int64) field {
	return field{name, func(node *yaml.Node) error {
		amount, err := quantity.Parse(scalar(node))
		if err != nil {
			return err
		}
		if *into = amount.Value(); *into < 1 || *into > most {
			return fmt.Errorf("must be 1 to %d; leave it out for no limit", most)
		}
		return nil
	}}
}

// scalar returns the text of a value; "" if it is not a single value.
func scalar(node *yaml.Node) string {
	if node.Kind != yaml.ScalarNode {
		return ""
	}
	return node.Value
}

func boolField(name string, into *workload.Optional[bool]) field {
	return field{name, func(node *yaml.Node) error {
		on := scalar(node) == "true"
		if *into = workload.Some(on); !on && scalar(node) != "false" {
			return errors.New("must be true or false")
		}
		return nil
	}}
}

func parseMemoryQoS(text string) (workload.MemoryQoS, error) {
	var m workload.MemoryQoS
	err := parseMapping(text,
		numberField("minPercent", &m.MinPercent, 0, 100),
		numberField("lowPercent", &m.LowPercent, 0, 100),
		numberField("highPercent", &m.HighPercent, 0, 100),
		numberField("wmarkRatio", &m.WmarkRatio, 0, 100),
		numberField("wmarkScale", &m.WmarkScale, 1, 1000),
		numberField("wmarkMinAdj", &m.WmarkMinAdj, -25, 50),
		numberField("priority", &m.Priority, 0, 12),
		boolField("oomGroup", &m.OOMGroup),
		boolField("offload", &m.Offload),
		field{"swap", func(node *yaml.Node) error {
			m.Swap.Set = true
			return m.Swap.Value.UnmarshalText([]byte(scalar(node)))
		}},
	)
	return m, err
}

func parseIO(text string) (workload.IO, error) {
	var out workload.IO
	fields := append(limitFields(&out.Weight, &out.Limits),
		field{"priority", func(node *yaml.Node) error {
			return out.Priority.UnmarshalText([]byte(scalar(node)))
		}},
		field{"devices", func(node *yaml.Node) (err error) {
			out.Devices, err = readDevices(node)
			return err
		}})
	return out, parseMapping(text, fields...)
}

// maxIOPS is the largest value that the throttle files of cgroup v1 accept.
const maxIOPS = math.MaxUint32

func limitFields(weight *workload.Optional[int], l *workload.IOLimits) []field {
	return []field{
		numberField("weight", weight, 1, 10000),
		amountField("readBPS", &l.ReadBPS, math.MaxInt64),
		amountField("writeBPS", &l.WriteBPS, math.MaxInt64),
		amountField("readIOPS", &l.ReadIOPS, maxIOPS),
		amountField("writeIOPS", &l.WriteIOPS, maxIOPS),
	}
}

// readDevices parses a mapping of devices, and sorts it.
func readDevices(node *yaml.Node) ([]workload.DeviceIO, error) {
	if node.Kind != yaml.MappingNode {
		return nil, errors.New(`must be a mapping like {"8:0": {readBPS: 10Mi}}`)
	}
	var list []workload.DeviceIO
	for i := 0; i+1 < len(node.Content); i += 2 {
		d := workload.DeviceIO{Device: node.Content[i].Value}
		if err := checkDevice(d.Device); err != nil {
			return nil, err
		}
		if err := readMapping(node.Content[i+1], limitFields(&d.Weight, &d.Limits)); err != nil {
			return nil, fmt.Errorf("%s: %w", d.Device, err)
		}
		if slices.ContainsFunc(list, func(other workload.DeviceIO) bool { return other.Device == d.Device }) {
			return nil, fmt.Errorf("%s is there twice", quote(d.Device))
		}
		list = append(list, d)
	}
	slices.SortFunc(list, func(a, b workload.DeviceIO) int { return strings.Compare(a.Device, b.Device) })
	return list, nil
}

// checkDevice accepts "8:0" and clean paths below /dev.
func checkDevice(name string) error {
	major, minor, numbers := strings.Cut(name, ":")
	if numbers && deviceNumber(major, 12) && deviceNumber(minor, 20) {
		return nil
	}
	letters := strings.Trim(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.:+@/") == ""
	if letters && strings.HasPrefix(name, "/dev/") && path.Clean(name) == name && len(name) < 256 {
		return nil
	}
	return fmt.Errorf("%s is no block device: name it as /dev/sda, or by its numbers as 8:0", quote(name))
}

// deviceNumber reports whether text is a number of that many bits in the only spelling that the
// kernel uses.
func deviceNumber(text string, bits int) bool {
	n, err := strconv.ParseUint(text, 10, bits)
	return err == nil && strconv.FormatUint(n, 10) == text
}
