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

The command prints environment variables for any AWS client, with the credentials of the account's administrator. It
serves until you interrupt it.

--enforce-iam enforces the IAM policies of role sessions; the administrator may do everything. To test a policy, create
a role that trusts the account, attach the policy, and assume the role.

--fault SPEC, where SPEC is ` + strings.ReplaceAll(awsim.FaultHelp, "\n", "\n  ") + `

--state FILE persists the account: the file records every call that may change it, and the next start replays them. The
account then has the same resources and IDs as if it had never stopped. Faults are not persisted.`,
		Example: `  dovetail-lab aws
  dovetail-lab aws --region eu-west-1 --cluster shop --enforce-iam   # with the resources of an EKS cluster
  dovetail-lab aws --fault ec2.CreateFleet=RequestLimitExceeded,times=3 --fault 'ec2.*=slow,delay=2s,share=0.1'
  dovetail-lab aws --fault pool:m5.large/us-east-1a/spot=0 --state account.jsonl`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error { return serveAWS(cmd, o) },
	}
	cmd.Flags().StringVar(&o.listen, "listen", "127.0.0.1:4566", "address to listen on; port 0 chooses a free one")
	cmd.Flags().StringVar(&o.region, "region", "us-east-1", "region of the account")
	cmd.Flags().StringVar(&o.cluster, "cluster", "", "name of an EKS cluster to create resources for: network, roles, interruption queue")
	cmd.Flags().BoolVar(&o.enforceIAM, "enforce-iam", false, "enforce the IAM policies of role sessions")
	cmd.Flags().BoolVar(&o.throttle, "throttle", false, "enforce EC2's default API rate limits")
	cmd.Flags().StringArrayVar(&o.faults, "fault", nil, "inject a fault into calls or capacity pools, see above; repeatable")
	cmd.Flags().StringVar(&o.state, "state", "", "file that persists the account; created if absent")
	return cmd
}

// account returns the simulated account that the flags describe, and the function that closes it.
func (o awsOptions) account() (sim *awsim.Sim, closeState func() error, err error) {
	options := awsim.Options{Region: o.region, EnforceIAM: o.enforceIAM, Throttle: o.throttle}
	closeState = func() error { return nil }
	var state *journal.Journal
	if o.state != "" {
		state, err = journal.Open(o.state, journal.Settings{
			Opened: time.Now().UTC().Truncate(time.Millisecond), Region: o.region, Cluster: o.cluster, EnforceIAM: o.enforceIAM,
		})
		if err != nil {
			return nil, nil, err
		}
		options.Journal, options.Clock, closeState = state, state.Clock, state.Close
	}
	if sim, err = awsim.New(options); err != nil {
		return nil, nil, errors.Join(err, closeState())
	}
	if o.cluster != "" {
		// There is no API server. This address refuses connections.
		err = sim.SeedCluster(awsim.ClusterSpec{Name: o.cluster, Version: "1.36", Endpoint: "https://127.0.0.1:1"})
	}
	if err == nil && state != nil {
		_, err = state.Replay(sim.Replay)
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
		return nil, nil, errors.Join(err, closeState())
	}
	return sim, closeState, nil
}

func serveAWS(cmd *cobra.Command, o awsOptions) error {
	sim, closeState, err := o.account()
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", o.listen)
	if err != nil {
		return errors.Join(fmt.Errorf("%w (choose another address with --listen)", err), closeState())
	}
	url := "http://" + listener.Addr().String()
	printExports(
		cmd.OutOrStdout(),
		world.AWSEnvironment(url, o.region, awsim.Credentials{AccessKeyID: credential.AdminAccessKeyID, SecretAccessKey: "test"}),
	)
	server := &http.Server{Handler: sim, ReadHeaderTimeout: 10 * time.Second}
	stop := context.AfterFunc(cmd.Context(), func() { _ = server.Close() })
	defer stop()
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return errors.Join(fmt.Errorf("serve AWS: %w", err), closeState())
	}
	return closeState()
}

// printExports prints shell commands that export the variables.
func printExports(out io.Writer, variables []world.Variable) {
	for _, v := range variables {
		fmt.Fprintf(out, "export %s=%s\n", v.Name, shellQuote(v.Value))
	}
}

// shellSafe matches words that need no shell quotes.
var shellSafe = regexp.MustCompile(`^[0-9A-Za-z_./:@%+,=-]+$`)

// shellQuote returns text as one shell word.
func shellQuote(text string) string {
	if shellSafe.MatchString(text) {
		return text
	}
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}
