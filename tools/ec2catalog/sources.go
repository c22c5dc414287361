package main

import (
	"archive/zip"
	"encoding/json"
	"fmt"
	"io"
	"os/exec"
	"path"
)

// module is a source of data at one version.
type module struct {
	path, version, sum string
}

var (
	// priceList is the data set behind ec2instances.info: what each type costs where, as Linux and Windows, on demand
	// and spot.
	priceList = module{
		"github.com/cristim/ec2-instances-info", "v0.0.0-20250528091325-32acf84f42eb",
		"h1:exJ9FsMTbotSG5xgDHmFJE84gV3MZ4JRpR8nhbgJz/k=",
	}
	// priceTables has newer prices of us-east-1 and GovCloud, prices of China, and devices of DRA drivers. Its tables are
	// read as data; its code is not.
	priceTables = module{
		"github.com/aws/karpenter-provider-aws", "v1.15.1",
		"h1:6eH///KgWKDwD2R6wHRnKGN8Vu8OHueaXjNdx64TnuY=",
	}
)

// Files of priceTables.
const (
	tableOfAWS      = "pkg/providers/pricing/zz_generated.pricing_aws.go"
	tableOfGovCloud = "pkg/providers/pricing/zz_generated.pricing_aws_us_gov.go"
	tableOfChina    = "pkg/providers/pricing/zz_generated.pricing_aws_cn.go"
	tableOfLimits   = "pkg/providers/instancetype/zz_generated.vpclimits.go"
)

// read returns a file of the module, which the go command fetches and verifies.
func (m module) read(name string) ([]byte, error) {
	out, failed := exec.Command("go", "mod", "download", "-json", m.path+"@"+m.version).Output()
	var got struct{ Zip, Sum, Error string }
	if err := json.Unmarshal(out, &got); err != nil {
		return nil, fmt.Errorf("download %s@%s: %w: %s", m.path, m.version, failed, out)
	}
	if got.Sum != m.sum {
		return nil, fmt.Errorf("download %s@%s: checksum %q, want %s: %s", m.path, m.version, got.Sum, m.sum, got.Error)
	}
	// The go command does not unpack a module that requires a newer Go. As it is only read, its archive is enough.
	archive, err := zip.OpenReader(got.Zip)
	if err != nil {
		return nil, fmt.Errorf("%s@%s: %w", m.path, m.version, err)
	}
	defer archive.Close()
	f, err := archive.Open(path.Join(m.path+"@"+m.version, name))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(f)
}
