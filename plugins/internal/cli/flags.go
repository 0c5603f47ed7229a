package cli

import (
	"errors"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// Choice is a flag whose value is one of a few words; the first is the default.
type Choice struct {
	value string
	words []string
}

func (c *Choice) String() string { return c.value }

// Type implements pflag.Value: it stands in the help.
func (c *Choice) Type() string { return strings.Join(c.words, "|") }

// Set implements pflag.Value.
func (c *Choice) Set(word string) error {
	if !slices.Contains(c.words, word) {
		return errors.New("must be " + strings.Join(c.words[:len(c.words)-1], ", ") + " or " + c.words[len(c.words)-1])
	}
	c.value = word
	return nil
}

// ChoiceFlag adds a flag with these words, the default first. A letter of "" is none.
func ChoiceFlag(c *cobra.Command, name, letter, usage string, words ...string) *Choice {
	choice := &Choice{value: words[0], words: words}
	c.Flags().VarP(choice, name, letter, usage)
	Complete(c, name, func(string) []string { return words })
	return choice
}

// OutputFlag adds the flag -o with these words, the default first.
func OutputFlag(c *cobra.Command, words ...string) *Choice {
	return ChoiceFlag(c, "output", "o", "output format", words...)
}

// Complete sets the shell completion of a flag; words lists the candidates for what has been
// typed.
func Complete(c *cobra.Command, flag string, words func(begun string) []string) {
	err := c.RegisterFlagCompletionFunc(flag, func(_ *cobra.Command, _ []string, begun string) ([]string, cobra.ShellCompDirective) {
		return words(begun), cobra.ShellCompDirectiveNoFileComp
	})
	if err != nil {
		panic(err) // fails only for an unknown flag or a second registration
	}
}
