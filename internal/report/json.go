package report

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
)

// APIVersion is the version of the documents that commands print with -o json. docs/schema has the schema of each kind.
const APIVersion = "dovetail.sh/v1alpha1"

// JSON writes a report for programs, indented, with the characters of names as they are. It begins with apiVersion and kind. A report
// that is not an object of JSON is an error.
func JSON(w io.Writer, kind string, report any) error {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetIndent("", "  ")
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(report); err != nil {
		return err
	}
	fields, found := bytes.CutPrefix(text.Bytes(), []byte("{"))
	if !found {
		return fmt.Errorf("a report of kind %s is not an object: %.40s", kind, text.Bytes())
	}
	if !bytes.HasPrefix(fields, []byte("}")) {
		fields = append([]byte(","), fields...)
	}
	_, err := fmt.Fprintf(w, "{\n  %s%s", Header(kind), fields)
	return err
}

// Header is the first two members of a document of a kind.
func Header(kind string) string {
	return fmt.Sprintf("\"apiVersion\": %q,\n  \"kind\": %q", APIVersion, kind)
}
