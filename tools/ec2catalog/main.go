// Command ec2catalog generates internal/engine/catalog/offline/ec2.tsv.gz: every EC2 instance type
// and its prices, in the format that the package offline documents.
//
// The facts come from two Go modules, pinned by version and checksum (sources.go) and fetched by
// the go command, so that no account and no network but the module proxy is needed. What neither
// of them knows follows from rules (rules.go), each with the AWS documentation that it restates, and
// from tables of what came later: new families (families.txt) and new prices (repriced.txt).
// The output depends on nothing else: the same sources give the same text.
//
//	cd tools/ec2catalog && GOWORK=off go run .          # write the file
//	cd tools/ec2catalog && GOWORK=off go run . -check   # fail if the committed file differs
package main

import (
	"bytes"
	"compress/gzip"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

func main() {
	out := flag.String("o", filepath.Join("..", "..", "internal", "engine", "catalog", "offline", "ec2.tsv.gz"), "file to write")
	check := flag.Bool("check", false, "write nothing, fail if the file differs from what would be written")
	flag.Parse()
	if err := run(*out, *check); err != nil {
		fmt.Fprintln(os.Stderr, "ec2catalog:", err)
		os.Exit(1)
	}
}

func run(path string, check bool) error {
	text, err := generate()
	if err != nil {
		return err
	}
	if check {
		return compare(path, text)
	}
	var file bytes.Buffer
	z, err := gzip.NewWriterLevel(&file, gzip.BestCompression)
	if err != nil {
		return err
	}
	if _, err := z.Write(text); err != nil {
		return err
	}
	if err := z.Close(); err != nil {
		return err
	}
	return os.WriteFile(path, file.Bytes(), 0o644)
}

// generate returns the uncompressed catalog.
func generate() ([]byte, error) {
	listDir, err := download(priceList)
	if err != nil {
		return nil, err
	}
	instances, err := readInstances(filepath.Join(listDir, "data", "instances.json"))
	if err != nil {
		return nil, err
	}
	if err := reprice(instances, repricedText); err != nil {
		return nil, err
	}
	limitsDir, err := download(networkLimits)
	if err != nil {
		return nil, err
	}
	limits, err := readLimits(filepath.Join(limitsDir, "pkg", "vpc", "vpc_ip_resource_limit.go"))
	if err != nil {
		return nil, err
	}
	rows, err := derive(instances, limits)
	if err != nil {
		return nil, err
	}
	return encode(rows), nil
}

// compare looks at the text only, since compressed bytes may change with the Go release.
func compare(path string, want []byte) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	have, err := io.ReadAll(z)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if !bytes.Equal(have, want) {
		return fmt.Errorf("%s is not what its sources and rules give: run ec2catalog and commit the result", path)
	}
	return nil
}
