package control

import (
	"errors"
	"slices"
	"strings"
)

// choose parses one of the choices. Its error is worded like those of pkg/config.
func choose[T ~string](into *T, text []byte, choices ...T) error {
	if !slices.Contains(choices, T(text)) {
		names := make([]string, len(choices))
		for i, c := range choices {
			names[i] = string(c)
		}
		last := len(names) - 1
		return errors.New("must be " + strings.Join(names[:last], ", ") + " or " + names[last])
	}
	*into = T(text)
	return nil
}
