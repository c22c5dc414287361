package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"regexp"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/dovetail-k8s/dovetail/lab/awsim"
	"github.com/dovetail-k8s/dovetail/lab/awsim/credential"
	"github.com/dovetail-k8s/dovetail/lab/awsim/journal"
	"github.com/dovetail-k8s/dovetail/lab/scenario/world"
)

// awsOptions are the flags of the command aws.
type awsOptions struct {
	listen, region, cluster string
	enforceIAM, throttle    bool
	faults                  []string
	state                   string
}

func newAWS() *cobra.Command {
	var o awsOptions
	cmd := &cobra.Command{
		Use:   "aws",
		Short: "Serve the simulated AWS alone",
		Long: `Serve the simulated AWS alone: EC2, IAM, STS, SSM, EKS, SQS, Pricing and zonal shifts on one endpoint.

It prints the environment by which any AWS client finds it, as the account's administrator, and serves until
interrupted.

--enforce-iam holds role sessions to the policies of their roles, as AWS does; the administrator may do everything.
Make a role that trusts the account, give it a policy, and assume it.

--fault SPEC, where SPEC is ` + strings.ReplaceAll(awsim.FaultHelp, "\n", "\n  ") + `

--state FILE keeps the account in a file: every call that may change it is written down, and made again at the next
start, so that the account is there again with all its IDs, as if it had run on. Faults are not kept.`,
		Example: `  dovetail-lab aws
  dovetail-lab aws --region eu-west-1 --cluster shop --enforce-iam   # with what an account holds for an EKS cluster
  dovetail-lab aws --fault ec2.CreateFleet=RequestLimitExceeded,times=3 --fault 'ec2.*=slow,delay=2s,share=0.1'
  dovetail-lab aws --fault pool:m5.large/us-east-1a/spot=0 --state account.jsonl`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error { return serveAWS(cmd, o) },
	}
	cmd.Flags().StringVar(&o.listen, "listen", "127.0.0.1:4566", "address to serve on; port 0 chooses a free one")
	cmd.Flags().StringVar(&o.region, "region", "us-east-1", "region of the account")
	cmd.Flags().StringVar(&o.cluster, "cluster", "", "name of an EKS cluster to set the account up for: network, roles, queue with the events of instances")
	cmd.Flags().BoolVar(&o.enforceIAM, "enforce-iam", false, "hold role sessions to the policies of their roles")
	cmd.Flags().BoolVar(&o.throttle, "throttle", false, "enforce EC2's default rates of calls")
	cmd.Flags().StringArrayVar(&o.faults, "fault", nil, "disturb calls or pools, see above; can be repeated")
	cmd.Flags().StringVar(&o.state, "state", "", "file to keep the account in; it is made if absent")
	return cmd
}

// account is the simulated account that the flags describe, and what ends it.
func (o awsOptions) account() (sim *awsim.Sim, end func() error, err error) {
	options := awsim.Options{Region: o.region, EnforceIAM: o.enforceIAM, Throttle: o.throttle}
	end = func() error { return nil }
	var kept *journal.Journal
	if o.state != "" {
		kept, err = journal.Open(o.state, journal.Settings{
			Opened: time.Now().UTC().Truncate(time.Millisecond), Region: o.region, Cluster: o.cluster, EnforceIAM: o.enforceIAM,
		})
		if err != nil {
			return nil, nil, err
		}
		options.Journal, options.Clock, end = kept, kept.Clock, kept.Close
	}
	if sim, err = awsim.New(options); err != nil {
		return nil, nil, errors.Join(err, end())
	}
	if o.cluster != "" {
		// There is no API server; the address is one that refuses connections.
		err = sim.SeedCluster(awsim.ClusterSpec{Name: o.cluster, Version: "1.36", Endpoint: "https://127.0.0.1:1"})
	}
	if err == nil && kept != nil {
		_, err = kept.Replay(sim.Replay)
	}
	if err == nil && o.cluster != "" {
		err = sim.SendEventsTo(o.cluster)
	}
	for _, fault := range o.faults {
		if err == nil {
			err = sim.InjectSpec(fault)
		}
	}
	if err != nil {
		return nil, nil, errors.Join(err, end())
	}
	return sim, end, nil
}

func serveAWS(cmd *cobra.Command, o awsOptions) error {
	sim, end, err := o.account()
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", o.listen)
	if err != nil {
		return errors.Join(fmt.Errorf("%w (choose another address with --listen)", err), end())
	}
	url := "http://" + listener.Addr().String()
	printExports(cmd.OutOrStdout(), world.AWSEnvironment(url, o.region, awsim.Credentials{AccessKeyID: credential.AdminAccessKeyID, SecretAccessKey: "test"}))
	server := &http.Server{Handler: sim, ReadHeaderTimeout: 10 * time.Second}
	stop := context.AfterFunc(cmd.Context(), func() { _ = server.Close() })
	defer stop()
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return errors.Join(fmt.Errorf("serve AWS: %w", err), end())
	}
	return end()
}

// printExports writes variables as a shell reads them.
func printExports(out io.Writer, variables []world.Variable) {
	for _, v := range variables {
		fmt.Fprintf(out, "export %s=%s\n", v.Name, shellQuote(v.Value))
	}
}

// shellSafe is what a shell reads as it stands. Directories of users have blanks and more.
var shellSafe = regexp.MustCompile(`^[0-9A-Za-z_./:@%+,=-]+$`)

// shellQuote writes text as one word of a shell.
func shellQuote(text string) string {
	if shellSafe.MatchString(text) {
		return text
	}
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}
