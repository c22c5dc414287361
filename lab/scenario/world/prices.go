package world

import (
	"context"
	"fmt"
	"strconv"
	"sync"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/dovetail-k8s/dovetail/internal/engine/catalog/offline"
	"github.com/dovetail-k8s/dovetail/lab/awsim"
)

// prices caches the prices of instance types. They do not change during the life of an account.
type prices struct {
	mu      sync.Mutex
	catalog *offline.Catalog
	spot    map[spotKey]float64
}

type spotKey struct{ instanceType, zone string }

// Price is what an instance costs, in dollars per hour.
func (w *World) Price(ctx context.Context, i awsim.Instance) (float64, error) {
	if i.Lifecycle == "spot" {
		return w.spotPrice(ctx, spotKey{instanceType: i.Type, zone: i.Zone})
	}
	w.prices.mu.Lock()
	defer w.prices.mu.Unlock()
	if w.prices.catalog == nil {
		catalog, err := offline.Load(w.cfg.Region)
		if err != nil {
			return 0, err
		}
		w.prices.catalog = catalog
	}
	price, ok := w.prices.catalog.OnDemand(w.cfg.Region, i.Type)
	if !ok {
		return 0, fmt.Errorf("no price of %s in %s", i.Type, w.cfg.Region)
	}
	return price, nil
}

func (w *World) spotPrice(ctx context.Context, key spotKey) (float64, error) {
	w.prices.mu.Lock()
	defer w.prices.mu.Unlock()
	if price, ok := w.prices.spot[key]; ok {
		return price, nil
	}
	out, err := w.EC2().DescribeSpotPriceHistory(ctx, &ec2.DescribeSpotPriceHistoryInput{
		InstanceTypes: []ec2types.InstanceType{ec2types.InstanceType(key.instanceType)}, AvailabilityZone: &key.zone,
		ProductDescriptions: []string{"Linux/UNIX"}, StartTime: aws.Time(w.AWS.Now()),
	})
	if err != nil {
		return 0, fmt.Errorf("spot price of %s in %s: %w", key.instanceType, key.zone, err)
	}
	if len(out.SpotPriceHistory) == 0 {
		return 0, fmt.Errorf("no spot price of %s in %s", key.instanceType, key.zone)
	}
	price, err := strconv.ParseFloat(aws.ToString(out.SpotPriceHistory[0].SpotPrice), 64)
	if err != nil {
		return 0, fmt.Errorf("spot price of %s in %s: %w", key.instanceType, key.zone, err)
	}
	if w.prices.spot == nil {
		w.prices.spot = map[spotKey]float64{}
	}
	w.prices.spot[key] = price
	return price, nil
}

// Cost is what a cluster's live instances cost together, in dollars per hour.
func (c *Cluster) Cost(ctx context.Context) (float64, error) {
	total := 0.0
	for _, i := range c.Running() {
		price, err := c.world.Price(ctx, i)
		if err != nil {
			return 0, err
		}
		total += price
	}
	return total, nil
}
