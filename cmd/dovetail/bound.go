package main

import (
	"fmt"
	"io"
	"os"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/dovetail-k8s/dovetail/internal/manifest"
)

// bound is a flag: how much is read at most.
type bound struct{ quantity resource.Quantity }

func (b *bound) bind(fs *pflag.FlagSet) {
	b.quantity = *resource.NewQuantity(manifest.DefaultMaxBytes, resource.BinarySI)
	fs.Var(b, "max-input", "how much is read of all inputs together at most, such as 500Mi or 4Gi")
}

// bytes is the bound; 0 means the default.
func (b *bound) bytes() int64 { return b.quantity.Value() }

// Set implements pflag.Value.
func (b *bound) Set(text string) error {
	q, err := resource.ParseQuantity(text)
	if err != nil || q.Sign() <= 0 {
		return fmt.Errorf("%q is not an amount of memory, such as 500Mi or 4Gi", text)
	}
	b.quantity = q
	return nil
}

// String implements pflag.Value.
func (b *bound) String() string { return b.quantity.String() }

// Type implements pflag.Value.
func (*bound) Type() string { return "size" }

// read reads one file within the bound.
func (b *bound) read(path string) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close() // nothing was written
	most := b.bytes()
	if most == 0 {
		most = manifest.DefaultMaxBytes
	}
	data, err := io.ReadAll(io.LimitReader(file, most+1))
	if err == nil && int64(len(data)) > most {
		err = fmt.Errorf("%s is larger than %s: raise --max-input", path, &b.quantity)
	}
	return data, err
}
