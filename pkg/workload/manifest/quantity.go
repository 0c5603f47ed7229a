package manifest

import (
	"fmt"

	"gopkg.in/yaml.v3"

	"github.com/sluice-dev/sluice/pkg/text/quantity"
)

// amount is a resource amount in a manifest.
type amount quantity.Amount

// value returns the amount in whole units, rounded up.
func (a amount) value() int64 { return quantity.Amount(a).Value() }

// UnmarshalYAML parses an amount that is written as a number or as text.
func (a *amount) UnmarshalYAML(node *yaml.Node) error {
	if node.Kind != yaml.ScalarNode {
		return fmt.Errorf("line %d: a resource amount must be a number like 2, 500m or 1Gi", node.Line)
	}
	parsed, err := quantity.Parse(node.Value)
	if err != nil {
		return fmt.Errorf("line %d: resource amount %.80q %w", node.Line, node.Value, err)
	}
	*a = amount(parsed)
	return nil
}
