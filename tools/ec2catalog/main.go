// Command ec2catalog generates internal/engine/catalog/offline/data: every EC2 instance type, where it is offered,
// what it costs, and which devices its nodes publish, in the format that the package offline documents.
//
// What the types are and where they are offered comes from data/ (see its README). Prices, and the devices that DRA
// drivers publish, come from two Go modules, pinned by version and checksum (sources.go) and fetched by the go command,
// so that no account and no network but the module proxy is needed. A price that no source has is not written: the
// header of a region's file holds the ratios by which the package offline derives it. The output depends on nothing
// else: the same sources give the same text.
//
//	cd tools/ec2catalog && GOWORK=off go run .          # write the files
//	cd tools/ec2catalog && GOWORK=off go run . -check   # fail if the committed files differ
package main

import (
	"bytes"
	"compress/gzip"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
)

// committed is where the package offline embeds its data from.
var committed = filepath.Join("..", "..", "internal", "engine", "catalog", "offline", "data")

func main() {
	out := flag.String("o", committed, "directory to write to")
	check := flag.Bool("check", false, "write nothing; fail if the files differ from the generated ones")
	flag.Parse()
	if err := run(*out, *check); err != nil {
		fmt.Fprintln(os.Stderr, "ec2catalog:", err)
		os.Exit(1)
	}
}

func run(dir string, check bool) error {
	files, err := generate()
	if err != nil {
		return err
	}
	if check {
		return compare(dir, files)
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		packed, err := pack(files[name])
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, name), packed, 0o644); err != nil {
			return err
		}
	}
	return nil
}

func pack(text []byte) ([]byte, error) {
	var file bytes.Buffer
	z, err := gzip.NewWriterLevel(&file, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	if _, err := z.Write(text); err != nil {
		return nil, err
	}
	err = z.Close()
	return file.Bytes(), err
}

// generate returns the uncompressed files by name.
func generate() (map[string][]byte, error) {
	known, err := readFacts()
	if err != nil {
		return nil, err
	}
	prices, err := readPrices()
	if err != nil {
		return nil, err
	}
	devices, err := readDevices()
	if err != nil {
		return nil, err
	}
	files := map[string][]byte{
		"types.tsv.gz": encodeTypes(known, prices.windowsFees(known)), "devices.tsv.gz": encodeDevices(devices),
	}
	for _, m := range markets(known, prices) {
		files[m.name+".tsv.gz"] = m.encode()
	}
	return files, nil
}

// compare looks at the text only, since compressed bytes may change with the Go release.
func compare(dir string, want map[string][]byte) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if want[e.Name()] == nil {
			return fmt.Errorf("%s: the sources no longer produce this file: delete it", filepath.Join(dir, e.Name()))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(want)) {
		have, err := unpack(filepath.Join(dir, name))
		if err != nil {
			return err
		}
		if !bytes.Equal(have, want[name]) {
			return fmt.Errorf("%s is out of date: run ec2catalog and commit the result", filepath.Join(dir, name))
		}
	}
	return nil
}

func unpack(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	text, err := io.ReadAll(z)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return text, nil
}
