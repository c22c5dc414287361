package main

import (
	"bytes"
	"errors"
	"regexp"
	"strings"
	"time"

	spdxjson "github.com/spdx/tools-golang/json"
	"github.com/spdx/tools-golang/spdx"
	"github.com/spdx/tools-golang/spdx/v2/common"
	"golang.org/x/mod/module"
)

// noAssertion is SPDX's word for what nobody has looked at.
const noAssertion = "NOASSERTION"

// kind is what an SBOM is about.
type kind struct {
	id               common.ElementID
	purpose, summary string
}

var (
	imageOf   = kind{"Package-image", "CONTAINER", "Container image for "}
	archiveOf = kind{"Package-archive", "ARCHIVE", "Archive for "}
)

// inventory is what an SBOM lists.
type inventory struct {
	target
	kind   kind
	digest string // of the binary: SHA-256 in hex
	// modules are the product, which comes first, and the modules that are linked into its binary; data is the rest of the image.
	modules, data []component
}

// license is the expression for the whole image.
func (v inventory) license() string {
	var ids []string
	for _, c := range append(v.modules[:len(v.modules):len(v.modules)], v.data...) {
		ids = append(ids, strings.Split(c.license, " AND ")...)
	}
	return allOf(ids)
}

// sbom is the bill of materials as SPDX 2.3 in JSON.
func (v inventory) sbom() ([]byte, error) {
	name := v.program.name + "-" + v.tag() + "-" + strings.ReplaceAll(v.platform, "/", "-")
	doc := &spdx.Document{
		SPDXVersion: spdx.Version, DataLicense: spdx.DataLicense, SPDXIdentifier: "DOCUMENT", DocumentName: name,
		DocumentNamespace: sourceURL + "/spdx/" + name + "-" + v.digest,
		CreationInfo: &spdx.CreationInfo{
			Creators: []common.Creator{{CreatorType: "Tool", Creator: "dovetail-tools-image"}},
			Created:  v.created.Format(time.RFC3339),
		},
		OtherLicenses: []*spdx.OtherLicense{{
			LicenseIdentifier: publicDomain, LicenseName: "Public domain", ExtractedText: "The IANA asserts that the data is in the public domain.",
		}},
	}
	doc.Packages = []*spdx.Package{{
		PackageName: v.program.name, PackageSPDXIdentifier: v.kind.id, PackageVersion: v.tag(), PackageDownloadLocation: noAssertion,
		PackageLicenseConcluded: noAssertion, PackageLicenseDeclared: v.license(), PackageCopyrightText: noAssertion,
		PackageSummary: v.kind.summary + v.platform, PrimaryPackagePurpose: v.kind.purpose,
	}}
	relate := func(from common.ElementID, kind string, to common.ElementID) {
		doc.Relationships = append(doc.Relationships, &spdx.Relationship{
			RefA: common.MakeDocElementID("", string(from)), RefB: common.MakeDocElementID("", string(to)), Relationship: kind,
		})
	}
	relate("DOCUMENT", common.TypeRelationshipDescribe, v.kind.id)
	for i, c := range v.modules {
		p, err := c.spdx()
		if err != nil {
			return nil, err
		}
		doc.Packages = append(doc.Packages, p)
		if i == 0 {
			p.PrimaryPackagePurpose = "APPLICATION"
			p.PackageChecksums = []common.Checksum{{Algorithm: common.SHA256, Value: v.digest}}
			relate(v.kind.id, common.TypeRelationshipContains, p.PackageSPDXIdentifier)
			continue
		}
		relate(doc.Packages[1].PackageSPDXIdentifier, common.TypeRelationshipDependsOn, p.PackageSPDXIdentifier)
	}
	for _, c := range v.data {
		p, err := c.spdx()
		if err != nil {
			return nil, err
		}
		doc.Packages = append(doc.Packages, p)
		relate(v.kind.id, common.TypeRelationshipContains, p.PackageSPDXIdentifier)
	}
	var out bytes.Buffer
	err := spdxjson.Write(doc, &out, spdxjson.Indent(" "), spdxjson.EscapeHTML(false))
	return out.Bytes(), err
}

var notOfIDs = regexp.MustCompile(`[^A-Za-z0-9.-]+`)

// spdx describes a component.
func (c component) spdx() (*spdx.Package, error) {
	out := &spdx.Package{
		PackageName: c.name, PackageVersion: c.version,
		PackageSPDXIdentifier:   common.ElementID("Package-" + notOfIDs.ReplaceAllString(c.name+"-"+c.version, "-")),
		PackageDownloadLocation: c.location, PackageLicenseConcluded: c.license, PackageLicenseDeclared: c.license,
		PackageCopyrightText: noAssertion, PackageComment: c.comment,
	}
	if c.location == "" {
		var err error
		if out.PackageDownloadLocation, err = proxied(c.name, c.version); err != nil {
			return nil, err
		}
	}
	if c.name != "tzdata" {
		out.PackageExternalReferences = []*spdx.PackageExternalReference{{
			Category: common.CategoryPackageManager, RefType: common.TypePackageManagerPURL, Locator: "pkg:golang/" + c.name + "@" + c.version,
		}}
	}
	if c.sum != "" {
		out.PackageSourceInfo = "go.sum " + c.sum
	}
	return out, nil
}

// proxied is where the module proxy has the archive of a module.
func proxied(name, version string) (string, error) {
	name, err1 := module.EscapePath(name)
	version, err2 := module.EscapeVersion(version)
	return "https://proxy.golang.org/" + name + "/@v/" + version + ".zip", errors.Join(err1, err2)
}
