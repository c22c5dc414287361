package main

import (
	"archive/zip"
	"bytes"
	"encoding/pem"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"golang.org/x/crypto/x509roots/fallback/bundle"
)

// User is the numeric ID of the image's user and group; the chart sets the same.
const user = "65532"

// Paths in the image.
const (
	binaryPath       = "usr/bin/dovetail"
	certificatesPath = "etc/ssl/certs/ca-certificates.crt"
	zonesPath        = "usr/share/zoneinfo"
	licensesPath     = "licenses"
	sbomPath         = "licenses/sbom.spdx.json"
)

// temporary is where programs write files that nobody keeps.
const temporary = "tmp"

// baseTree is what a program expects of a system besides itself: root certificates, time zones, and a name for its user. It is the
// same for all platforms.
func baseTree(goroot string) (tree, error) {
	out := tree{
		certificatesPath: {content: certificates()},
		"etc/passwd": {content: []byte("root:x:0:0:root:/:/sbin/nologin\n" +
			"nonroot:x:" + user + ":" + user + ":nonroot:/:/sbin/nologin\n")},
		"etc/group": {content: []byte("root:x:0:\nnonroot:x:" + user + ":\n")},
	}
	if err := addZones(out, goroot); err != nil {
		return nil, err
	}
	return out, nil
}

// certificates are the root certificates that Mozilla trusts, as PEM. A root with a constraint is left out: a PEM file cannot express
// that only certificates before some date count.
func certificates() []byte {
	var out bytes.Buffer
	for root := range bundle.Roots() {
		if root.Constraint == nil {
			_ = pem.Encode(&out, &pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate}) // a buffer takes everything
		}
	}
	return out.Bytes()
}

// addZones adds the time zones that ship with the Go toolchain. Disruption budgets may name them.
func addZones(to tree, goroot string) error {
	archive, err := zip.OpenReader(filepath.Join(goroot, "lib", "time", "zoneinfo.zip"))
	if err != nil {
		return fmt.Errorf("read time zones: %w", err)
	}
	defer archive.Close() // only read
	for _, entry := range archive.File {
		if strings.HasSuffix(entry.Name, "/") {
			continue
		}
		reader, err := entry.Open()
		if err != nil {
			return err
		}
		content, err := io.ReadAll(reader)
		if err != nil {
			return fmt.Errorf("read time zone %s: %w", entry.Name, err)
		}
		to[zonesPath+"/"+entry.Name] = file{content: content}
	}
	return nil
}

var zonesRelease = regexp.MustCompile(`(?m)^DATA=(\S+)$`)

// zonesComponent describes the time zones for the SBOM.
func zonesComponent(goroot string) (component, error) {
	dir := filepath.Join(goroot, "lib", "time")
	script, err := os.ReadFile(filepath.Join(dir, "update.bash"))
	if err != nil {
		return component{}, err
	}
	notice, err := os.ReadFile(filepath.Join(dir, "README"))
	if err != nil {
		return component{}, err
	}
	version := zonesRelease.FindSubmatch(script)
	if version == nil {
		return component{}, fmt.Errorf("%s/update.bash does not name the release of the time zones", dir)
	}
	return component{
		name: "tzdata", version: string(version[1]), location: "https://www.iana.org/time-zones",
		license: publicDomain, texts: map[string][]byte{"README": notice},
	}, nil
}
