# agent_script.py
import asyncio
from runtime.discovery import use_tools
from runtime.exceptions import ToolNotFound

# 1. Agent declares its needs in natural language.
# The harness will intercept this, search a tool registry,
# and dynamically generate and inject the typed wrappers.
try:
    use_tools(
        "a tool to get the git commit log",
        "a tool to see file changes between two commits"
    )
    # 2. The harness makes the wrappers available as if they were statically imported.
    from servers.git import git_log, git_diff, GitLogParams
except ToolNotFound as e:
    # The harness can provide feedback if a tool isn't found
    print(f"Could not find a tool for: {e.query}")
    # Agent can then try a different query.
    exit()


# 3. Agent uses the powerful, type-safe wrappers it asked for.
async def main():
    """Analyzes the last 5 commits."""
    print("Analyzing recent commits...")
    
    # Use the dynamically-loaded, typed wrapper
    log_result = await git_log(GitLogParams(max_count=5))
    
    if len(log_result.commits) < 2:
        print("Not enough commits to compare.")
        return

    # Use another loaded wrapper
    diff_result = await git_diff(
        commit_a=log_result.commits[1].sha,
        commit_b=log_result.commits[0].sha
    )

    summary = {
        "commit_count": len(log_result.commits),
        "latest_commit_author": log_result.commits[0].author,
        "files_changed_in_last_commit": len(diff_result.files)
    }

    print(f"Analysis complete: {summary}")
    return summary

if __name__ == "__main__":
    asyncio.run(main())
