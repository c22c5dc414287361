package main

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	"github.com/dovetail-k8s/dovetail/internal/aws/instancetype"
	"github.com/dovetail-k8s/dovetail/internal/aws/offlineregion"
	"github.com/dovetail-k8s/dovetail/internal/engine/catalog/offline"
	"github.com/dovetail-k8s/dovetail/internal/manifest"
	"github.com/dovetail-k8s/dovetail/internal/planner"
	"github.com/dovetail-k8s/dovetail/internal/settings"
)

// catalogFlags select the catalog of instance types and prices, and limit how much is read.
type catalogFlags struct {
	region, catalog string
	maxInput        sizeLimit
}

// defaultRegion is the region of plans without a region in flags or inputs.
const defaultRegion = "us-east-1"

func (f *catalogFlags) bind(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.StringVar(
		&f.catalog,
		"catalog",
		"",
		"catalog file with instance types of your own, or a region of the built-in catalog, instead of --region",
	)
	bindRegion(
		cmd,
		&f.region,
		"region of the built-in catalog of EC2\n(default: that of the nodes and subnets among the inputs, else "+defaultRegion+")",
	)
	f.maxInput.bind(fs)
}

// check validates the flags by themselves.
func (f *catalogFlags) check() error {
	if f.region != "" && f.catalog != "" {
		return errors.New("--region and --catalog: use only one of them")
	}
	return nil
}

// open reads the catalog file, or the catalog that ships with the program. The inputs say of which region if no
// flag does, and whether pods request devices; nil is inputs that say neither.
func (f *catalogFlags) open(w *manifest.ClusterState, planning settings.Planning) (planner.Catalog, error) {
	if info, err := os.Stat(f.catalog); strings.ContainsAny(f.catalog, "./\\") || (err == nil && !info.IsDir()) {
		data, err := f.maxInput.read(f.catalog)
		if err != nil {
			return nil, fmt.Errorf("--catalog: %w", err)
		}
		c, err := planner.NewFile(data)
		if err != nil {
			return nil, fmt.Errorf("catalog %s: %w", f.catalog, err)
		}
		return c, nil
	}
	name := cmp.Or(f.catalog, f.region)
	if name == "" {
		name = planner.RegionOf(w)
		if !slices.Contains(offline.Regions(), name) {
			if name != "" {
				w.Notes = append(w.Notes, fmt.Sprintf("the nodes and subnets are in region %q, which is not in the catalog: "+
					"instance types and prices are those of %s. Choose another region with --region, or set your own prices with --catalog", name, defaultRegion))
			}
			name = defaultRegion
		}
	}
	data, err := offline.Load(name)
	if err != nil {
		return nil, err
	}
	how := instancetype.Settings{
		Region: name, ReservedENIs: planning.ReservedENIs, MemoryOverhead: planning.VMMemoryOverheadPercent, Expressions: true,
	}
	if w != nil && w.RequestDevices() { // as with the feature gates of both
		how.DRADrivers = []string{awsv1.DRADriverNVIDIA, awsv1.DRADriverEFA}
	}
	r, err := offlineregion.New(data, how)
	if err != nil {
		if f.catalog == "" {
			return nil, fmt.Errorf("--region: %w", err)
		}
		return nil, fmt.Errorf("--catalog: %w; or name a file with instance types of your own", err)
	}
	return r, nil
}
