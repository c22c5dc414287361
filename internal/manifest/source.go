package manifest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"

	"k8s.io/apimachinery/pkg/api/resource"
)

// source reads files up to a total size.
type source struct {
	stdin io.Reader
	// limit is how many bytes may be read, total how many were read.
	limit, total int64
}

// chunk is how much is read at a time: a binary file is noticed in the first.
const chunk = 1 << 20

// read returns the content of a file, or for "-" of stdin, and its name for people.
func (s *source) read(path string) (name string, data []byte, err error) {
	in, name := s.stdin, "stdin"
	if path != "-" {
		file, err := os.Open(path)
		if err != nil {
			return path, nil, err
		}
		defer file.Close() // nothing was written
		in, name = file, path
	}
	if in == nil {
		return name, nil, fmt.Errorf("%s: is closed", name)
	}
	var content bytes.Buffer
	for {
		before := content.Len()
		n, err := io.CopyN(&content, in, chunk)
		s.total += n
		switch {
		case err != nil && !errors.Is(err, io.EOF):
			return name, nil, fmt.Errorf("%s: %w", name, err)
		case s.total > s.limit:
			return name, nil, fmt.Errorf("%s: with it the inputs exceed %s: pass fewer files with -f, or raise --max-input",
				name, resource.NewQuantity(s.limit, resource.BinarySI))
		case bytes.IndexByte(content.Bytes()[before:], 0) >= 0:
			return name, nil, fmt.Errorf("%s: is not text in UTF-8, so neither YAML nor JSON", name)
		case err != nil:
			return name, content.Bytes(), nil
		}
	}
}
