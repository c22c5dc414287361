package settings

import (
	"fmt"

	"github.com/spf13/pflag"
)

// boolean is a flag that takes only true and false, not 1, t or yes.
type boolean bool

// Set implements pflag.Value.
func (b *boolean) Set(text string) error {
	switch text {
	case "true":
		*b = true
	case "false":
		*b = false
	default:
		return fmt.Errorf("%q is neither true nor false", text)
	}
	return nil
}

// String implements pflag.Value.
func (b *boolean) String() string { return fmt.Sprint(bool(*b)) }

// Type implements pflag.Value.
func (*boolean) Type() string { return "bool" }

// flagBool declares a flag that is true when it is set without a value. Its default is what p points to.
func flagBool(fs *pflag.FlagSet, p *bool, name, usage string) {
	fs.VarPF((*boolean)(p), name, "", usage).NoOptDefVal = "true"
}
